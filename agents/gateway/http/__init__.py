"""The HTTP layer: the server, requests, responses and limits on resources."""

__all__ = [
    "cors",
    "listening",
    "loop_stalls",
    "negotiation",
    "request_types",
    "requests",
    "resource_limits",
    "responses",
    "server",
]
