"""Load tests: what the gateway does under load, beside its peers, with reports.

Nothing here imports the gateway or its engines' keeper: they are driven as commands and over HTTP, as any
other server is. Run a part with `python -m loadtests.NAME`, or through the Makefile.
"""
