"""The mechanisms of both papers as pure functions: no I/O, no clock, no globals, dice handed in."""
