"""A gateway's state: publications, open submission targets, verdicts, frames being filled."""

__all__ = [
    "frame_writer",
    "metrics",
    "publications",
    "release_follower",
    "submission_targets",
    "verdicts",
]
