"""The profile `sharp`: more from the same data than the paper takes, at the same privacy."""
