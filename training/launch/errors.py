"""What keeps a run from beginning; messages say what to do."""

from __future__ import annotations


class LaunchError(Exception):
    """The run cannot begin as it is configured on this machine."""
