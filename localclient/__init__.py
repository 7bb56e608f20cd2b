"""What runs on a device: the local randomizer, its budget, and offline local search."""
