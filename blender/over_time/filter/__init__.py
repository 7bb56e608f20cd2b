"""The filter over epochs: one estimate of each known record, carried from epoch to epoch."""
