"""The filter over epochs: a Kalman filter for each known record, over a grid of modes."""

__all__ = ["epoch_filter", "filter_model", "filter_modes", "reference_records"]
