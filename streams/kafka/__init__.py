"""Kafka's topics, and the clients that query and check them."""

__all__ = [
    "aiokafka_internals",
    "kafka_clients",
    "topics",
]
