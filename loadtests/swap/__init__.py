"""Weights that change under load: `make demo-swap`, `make bench-swap`."""
