"""Abuse that nobody scripted: random steps on real sockets, and a model of what must be true."""
