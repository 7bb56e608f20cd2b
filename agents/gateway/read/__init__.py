"""The read side of the gateway: documents, tables, pages and the API's description."""

__all__ = ["answer_types", "epoch_series", "estimates_tables", "read_api", "static_pages"]
