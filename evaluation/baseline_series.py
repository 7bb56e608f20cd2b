"""Names of the baselines' curves, shared by the experiments and the figures."""

from typing import Final

__all__ = [
    "ALONE",
    "GIVEN",
    "LDP_MINER",
    "LDP_MINER_PADDED",
    "LDP_MINER_QUERIES",
    "NOTHING",
    "PEM",
]

#: A trusted curator who uses the opt-in users' records alone, without devices.
ALONE: Final = "curator, opt-in users alone"
#: Devices that answer about a list of records known from elsewhere.
GIVEN: Final = "local, candidates given"
#: Devices that also discover the records.
PEM: Final = "local, discovered (PEM)"
#: LDPMiner: about records, about queries, and about records with padding.
LDP_MINER: Final = "LDPMiner"
LDP_MINER_QUERIES: Final = "LDPMiner, queries"
LDP_MINER_PADDED: Final = "LDPMiner, padded"
#: A list without records.
NOTHING: Final = "nothing published"
