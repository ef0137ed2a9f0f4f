"""A stream goes on after its engine has gone: from the tokens that were produced, on another member."""
