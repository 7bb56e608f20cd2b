"""The read side of the gateway: documents, tables, pages and the API's description."""

__all__ = ["epoch_series", "estimates_tables", "read_api", "response_types", "static_pages"]
