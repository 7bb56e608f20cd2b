"""Logs without people's data, and the metrics that several processes share."""
