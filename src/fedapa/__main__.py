"""``python -m fedapa`` and ``fedapa``: the command line.

Importing it takes a moment, and Ctrl-C in that moment is no traceback: until then the system's own
answer to it holds.
"""

import signal
import threading

__all__ = ["main"]


def main() -> None:
    """Import the command line and run it."""
    first_thread = threading.current_thread() is threading.main_thread()
    heard = first_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from fedapa.cli import main as command_line

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command_line()


if __name__ == "__main__":
    main()
