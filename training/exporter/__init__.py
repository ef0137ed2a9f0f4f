"""Publishes the weights of a running training into a checkpoint store, without getting in its way.

`ExporterCallback` (callback.py) is the line to add to a TRL or transformers run. When to publish is decided
in `when.py`, what is published is copied in memory by `gather.py` and written by `folder.py`; a thread of
`publisher.py` does the rest.
"""
