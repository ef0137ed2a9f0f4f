"""The same run with other values, one after the other, and a table that compares them."""
