"""Answers kept for whoever asks the same again: what may be reused, its key, and where it is kept."""
