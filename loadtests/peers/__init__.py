"""Comparable gateways, run beside ours on one core each in turn: `python -m loadtests.peers`."""
