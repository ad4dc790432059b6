"""The process of `vocable` and `python -m vocable`: an interrupt is one line from the first import on."""

import signal
import sys


def main() -> int:
    """Import and run the command line."""
    try:
        from vocable.cli import main as run
    except KeyboardInterrupt:
        print("vocable: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    return run()


if __name__ == "__main__":
    sys.exit(main())
