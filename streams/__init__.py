"""What travels and where it rests: topics, wire records, settings, tables, releases, metrics."""
