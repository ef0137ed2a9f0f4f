"""What can be wrong with data; every message names the file and, where there is one, the record."""

from __future__ import annotations


class DataError(Exception):
    """The data cannot be used as it is; the message says where, why, and what to do."""
