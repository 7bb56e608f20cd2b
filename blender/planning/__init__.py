"""Predict the results of settings before any data exists."""

__all__ = ["records_per_user", "spending_plan"]
