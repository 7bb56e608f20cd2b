"""What to expect of settings before any data is there."""
