"""The mechanisms of the profile `sharp`: less error than the paper's at the same privacy."""

__all__ = [
    "agreement",
    "best_randomizer",
    "difference_blend",
    "gaussian_histogram",
    "group_difference",
    "optin_posterior",
    "stable_histogram",
]
