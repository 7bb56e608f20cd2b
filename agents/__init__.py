"""The processes (gateway, worker, jobs), the local test stack and the command line."""

if __name__ != "blendstream.agents":
    raise ImportError(
        f"this folder is imported as blendstream.agents, got {__name__}; "
        "write `import blendstream.agents`, after `make setup` or pip install"
    )
