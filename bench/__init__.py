"""Benchmarks: seeded, and printed as ratios against a baseline of the same run.

A benchmark is a module here with `main() -> None`; its docstring's first line says what.
`make bench` runs them all; `make bench BENCH="stack"` runs some.
"""
