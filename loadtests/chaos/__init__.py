"""Chaos on real engines: everything dies, freezes, fills or jumps while requests come, and each is judged."""
