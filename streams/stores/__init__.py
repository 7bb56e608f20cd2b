"""Kafka and Redis: how they are called, what rests there, and how an outage is waited out."""
