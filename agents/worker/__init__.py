"""The worker process: counts records and reports, once for each Kafka offset."""

__all__ = ["counting_process"]
