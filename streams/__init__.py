"""What travels and where it rests: topics, wire records, settings, tables, releases, metrics."""

if __name__ != "blendstream.streams":
    raise ImportError(
        f"this folder is imported as blendstream.streams, got {__name__}; "
        "write `import blendstream.streams`, after `make setup` or pip install"
    )
