"""Who moves it: the Faust agents, epoch jobs, gateway, local stack and command line."""

if __name__ != "blendstream.agents":
    raise ImportError(
        f"this folder is imported as blendstream.agents, got {__name__}; "
        "write `import blendstream.agents`, after `make setup` or pip install"
    )
