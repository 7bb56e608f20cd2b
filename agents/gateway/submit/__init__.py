"""What the gateway takes in: opt-in records and reports, on their way to Kafka."""
