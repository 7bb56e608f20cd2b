"""The profile `sharp`: more from the same data than the paper takes, at the same privacy."""

__all__ = [
    "agreement",
    "best_randomizer",
    "difference_blend",
    "gaussian_histogram",
    "group_difference",
    "optin_shares",
    "stable_histogram",
]
