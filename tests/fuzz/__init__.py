"""Bytes that nobody would send, at every reader of bytes: no crash, no hang, no leak, no 500."""
