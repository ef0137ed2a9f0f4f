"""The documentation, held against what it describes: `make docs`."""
