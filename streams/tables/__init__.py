"""What rests in Redis: the windowed counts, with their keys and scripts."""
