"""Entry point of `vocable` and `python -m vocable`: an interrupt prints one line, even during the first imports."""

from __future__ import annotations

import gc
import os
import signal
import sys


def open_streams() -> None:
    """Open the null device for each standard stream that is closed: otherwise the next file would take its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - stays open until the process ends


def main() -> int:
    """Import and run the command line."""
    try:
        open_streams()
        # Imports make many objects and no garbage: collections took 5 % of a cold start, and 2 % at 50,000.
        gc.set_threshold(100_000)
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # looking for some takes 4 %
        from vocable.cli import main as run
    except KeyboardInterrupt:
        print("vocable: interrupted", file=sys.stderr)
        status = 128 + signal.SIGINT
    else:
        status = run()
    gc.freeze()  # the collection at the end of a process would look at every object: an eighth of a cold search
    exec("")  # clears an interrupt inside an exec (dataclasses use it), which Python would take for the exit status
    return status


if __name__ == "__main__":
    sys.exit(main())
