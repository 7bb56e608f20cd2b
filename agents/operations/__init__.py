"""What operators' commands look at and repair: an installation, its fences, its release log."""
