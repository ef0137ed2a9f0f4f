"""`changeover doctor`: looks for what goes wrong in practice, and says how to mend it.

Facts are gathered in `gather.py`, `reach.py` and `tokenizers.py`; `rules.py` draws conclusions, without I/O.
Nothing here changes anything but a small file that is made in the store and removed again.
"""
