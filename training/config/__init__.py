"""The training configuration: one frozen, validated tree, read from files, environment and command line."""
