"""The process of `vocable` and `python -m vocable`: an interrupt is one line from the first import on."""

import signal
import sys


def main() -> int:
    """Import and run the command line."""
    try:
        from vocable.cli import main as run
    except KeyboardInterrupt:
        print("vocable: interrupted", file=sys.stderr)
        status = 128 + signal.SIGINT
    else:
        status = run()
    exec("")  # an interrupt within an exec, as in the making of dataclasses, is noted until the next one: as the status
    return status


if __name__ == "__main__":
    sys.exit(main())
