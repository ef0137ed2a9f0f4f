"""Publishing, killing publishers and probing real engines, driven through the command line only."""
