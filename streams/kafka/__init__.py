"""Kafka's topics, and the clients that ask about them."""

__all__ = [
    "aiokafka_internals",
    "kafka_clients",
    "topics",
]
