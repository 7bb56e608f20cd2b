"""Benchmarks: seeded, each with a baseline of the same run; `bench/_page.py` writes the page.

`make bench` runs them all; `make bench BENCH="counting gateway_http"` runs some.
"""
