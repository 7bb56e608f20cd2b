"""What the gateway publishes: documents, tables, pages and the API's description."""
