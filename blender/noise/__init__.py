"""Exact integer noise: the law of each variable, how it is drawn, and what its tail allows."""

__all__ = ["exact_noise", "noise_distribution", "opendp_noise"]
