"""The write side of the gateway: opt-in records and reports, on their way to Kafka."""

__all__ = ["admission", "frame_producer", "record_submissions", "submitting"]
