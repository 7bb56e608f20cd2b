"""One module for each verb of `blendstream`: `add_arguments(parser)` and `run(arguments)`."""
