"""The filter over epochs: one estimate of each known record, carried from epoch to epoch."""

__all__ = ["epoch_filter", "filter_model", "filter_modes"]
