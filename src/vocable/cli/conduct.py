"""How every command behaves: its exit status, its one line when something is wrong, and silence otherwise.

0    done, or whoever read our output has seen enough
1    a fault of ours: one line; with VOCABLE_DEBUG=1 the traceback, too
2    a mistake that the user can mend: one line
130  interrupted from the keyboard

Of several processes that `torchrun` started, the first speaks for all.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
import warnings

import typer
from typer.main import get_command

from vocable.errors import VocableError

# Commands that go on where they were stopped.
RESUMABLE = ("encode", "index", "mine", "pretrain", "removal", "score", "train", "wackiness")
GRACE = 10.0  # seconds that a process leaves the first one for saying what is wrong
QUIET = {
    "TRANSFORMERS_VERBOSITY": "critical",
    "HF_HUB_VERBOSITY": "critical",
    "DATASETS_VERBOSITY": "critical",
    "TQDM_DISABLE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",  # the "Loading weights" bar, too
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "true",  # said explicitly, it does not warn at every fork
}


def run(app: typer.Typer, arguments: list[str]) -> int:
    """Run the command that `arguments` name and give its exit status."""
    silence()
    if not _speaks():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the rest of the process
    try:
        command = get_command(app)
        with command.make_context("vocable", arguments or ["--help"]) as context:
            command.invoke(context)
        sys.stdout.flush()
    except BrokenPipeError:
        # Nothing can be written any more, not even what Python flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except typer.Exit as done:  # after --help, for one
        return done.exit_code
    except (KeyboardInterrupt, typer.Abort):
        again = "; the same command goes on from here" if arguments and arguments[0] in RESUMABLE else ""
        return _say(f"interrupted{again}", 130)
    except (VocableError, typer.TyperException, OSError) as error:
        return _say(_reason(error), 2)
    except Exception as error:  # the last resort: whatever it is, the user gets one line
        return _say(f"a fault of vocable: {_outline(error)}; set VOCABLE_DEBUG=1 for the traceback", 1)
    return 0


def silence() -> None:
    """Keep the libraries' bars, reports and warnings to themselves, unless VOCABLE_DEBUG is set; ours are one line."""
    for name, handler in (("vocable", _OneLine(logging.WARNING)), ("", logging.NullHandler())):
        logger = logging.getLogger(name)  # without any handler, Python prints other libraries' warnings
        if not any(type(known) is type(handler) for known in logger.handlers):
            logger.addHandler(handler)
    if not _debugging():
        warnings.simplefilter("ignore")
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)


class _OneLine(logging.Handler):
    """Shows what vocable logs as everything else that it says."""

    def emit(self, record: logging.LogRecord) -> None:
        _print_line(record.getMessage())


def _speaks() -> bool:
    """Whether this is the only process, or the first of those that `torchrun` started."""
    return os.environ.get("RANK", "0") == "0"


def _say(message: str, status: int) -> int:
    if status == 2 and not _speaks():
        time.sleep(GRACE)  # the first process has met the same mistake, and its end is that of this one
    if _debugging() and status != 130:
        traceback.print_exc()
    _print_line(message)
    return status


def _print_line(message: str) -> None:
    print(f"vocable: {' '.join(message.split())}", file=sys.stderr)


def _reason(error: BaseException) -> str:
    if isinstance(error, typer.TyperException):
        return error.format_message()
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _outline(error: BaseException) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _debugging() -> bool:
    return bool(os.environ.get("VOCABLE_DEBUG"))
