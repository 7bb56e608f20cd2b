"""HTTP under the gateway: the server, one request, and the limits on both."""

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
