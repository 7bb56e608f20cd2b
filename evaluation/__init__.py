"""Evaluation of the published estimates' accuracy, on populations whose truth is known."""

if __name__ != "blendstream.evaluation":
    raise ImportError(
        f"this folder is imported as blendstream.evaluation, got {__name__}; "
        "write `import blendstream.evaluation`, after `make setup` or pip install"
    )
