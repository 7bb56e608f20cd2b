"""The jobs process: opens and seals epochs, draws noise once, and publishes."""
