"""Shared infrastructure: Kafka topics, wire formats, settings, Redis tables, release log."""

if __name__ != "blendstream.streams":
    raise ImportError(
        f"this folder is imported as blendstream.streams, got {__name__}; "
        "write `import blendstream.streams`, after `make setup` or pip install"
    )
