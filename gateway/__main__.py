"""`python -m gateway`: the command `changeover`, for where it is not installed; workers are run so, too."""

import signal
import sys

if "--slot" in sys.argv:
    # A worker that is told to end while it starts ends by the signal: its supervisor takes that for order.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from gateway.cli import main

main()
