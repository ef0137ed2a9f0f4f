"""Clients that misbehave, and what observes them: small, on raw sockets, one file for each kind.

They know HTTP and event streams, not the gateway: a test says what is right. `waiting` is the only place
that sleeps.
"""
