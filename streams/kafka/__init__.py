"""Kafka's topics, and the clients that ask about them."""
