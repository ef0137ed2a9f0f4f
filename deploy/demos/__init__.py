"""Programs that show the whole at work, from nothing, on one machine."""
