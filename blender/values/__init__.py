"""Types that all mechanisms use: records, cells, parameters, estimates, intervals, errors."""

__all__ = [
    "answer_shape",
    "arrays",
    "cell_estimates",
    "cells",
    "errors",
    "interfaces",
    "intervals",
    "kept_records",
    "parameters",
    "random_source",
    "rational",
    "record",
]
