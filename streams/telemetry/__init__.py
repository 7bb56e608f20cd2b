"""Logging that excludes people's data, and the metrics that several processes share."""

__all__ = ["metrics", "structured_logs"]
