"""Baselines on the same people: a trusted curator, and purely local methods.

    trusted_curator     everyone trusts the curator (or the opt-in users alone report)
    given_candidates    nobody trusts the curator; the candidate records are known from elsewhere
    prefix_extension    nobody trusts the curator; the method discovers the records (PEM)
    ldp_miner           nobody trusts the curator; two phases (LDPMiner, the paper's only external
                        comparison)

Each takes the people's items (`held_items`) and returns a `PublishedList`, which `published_list`
scores as it scores both profiles. No baseline is part of the service: none draws secure noise.

Simulations work on counts: `frequency_oracles` draws the number of reports that support each
candidate from its exact distribution; of candidates that nobody holds it draws only the largest.
"""
