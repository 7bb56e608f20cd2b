"""The subcommands of `blendstream`: one module each, with `run(arguments)` and its options."""
