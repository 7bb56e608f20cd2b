"""Many epochs together: one budget for a period, and what earlier publications still tell."""
