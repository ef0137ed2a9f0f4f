"""One run from its start to its last line: what it leaves, how it is watched, stopped and resumed."""
