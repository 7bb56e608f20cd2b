"""Kafka and Redis: how they are called, what they store, and how an outage is waited out."""
