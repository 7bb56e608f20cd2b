"""Wire formats: the documents and frames that devices, gateways, workers and jobs exchange.

Free of Kafka, Faust and Redis, because devices share it.
"""

__all__ = [
    "canonical_json",
    "click_graph_document",
    "epoch_numbers",
    "estimates_document",
    "frames",
    "head_list_document",
    "schemas",
    "statements",
    "submissions",
]
