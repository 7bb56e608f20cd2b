"""One module for each verb of `blendstream`: `run(arguments)`, and its options."""
