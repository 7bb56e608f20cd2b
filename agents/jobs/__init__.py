"""The jobs process, which opens and seals epochs, draws noise once, and publishes."""

__all__ = [
    "broker_clocks",
    "epoch_schedule",
    "job_context",
    "jobs_process",
    "leases",
    "older_log",
    "restored_log",
]
