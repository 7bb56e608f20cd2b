"""What a gateway knows and holds: publications, what may be sent now, verdicts, frames to fill."""

__all__ = [
    "frame_writer",
    "metrics",
    "publications",
    "release_follower",
    "submission_targets",
    "verdicts",
]
