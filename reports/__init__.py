"""One page for every measurement: load, swaps, parity, training. Imports nothing of the project.

`page` makes it, `plots` draws; `python -m reports report.json report.html` makes it of data from elsewhere.
"""
