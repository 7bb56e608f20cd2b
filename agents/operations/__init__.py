"""What operators' commands check and repair: an installation, its fences, its release log."""
