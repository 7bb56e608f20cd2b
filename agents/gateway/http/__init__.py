"""HTTP under the gateway: the server, one request, and the limits on both."""
