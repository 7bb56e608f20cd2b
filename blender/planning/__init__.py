"""What to expect of settings before any data is there."""

__all__ = ["records_per_user", "spending_plan"]
