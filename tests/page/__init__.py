"""The operator's page in a real browser: `make page`."""
