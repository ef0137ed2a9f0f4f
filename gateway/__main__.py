"""`python -m gateway`: the same as `changeover`."""

from gateway.cli import main

main()
