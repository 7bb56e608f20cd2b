"""Exact integer noise: the distributions, exact samplers, and tail bounds for thresholds."""

__all__ = ["exact_noise", "noise_distribution", "opendp_noise"]
