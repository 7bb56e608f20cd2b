"""Randomizers over whole records: what a device does, and beside it how the server undoes it."""
