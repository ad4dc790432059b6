"""The command line: each command is declared (`vocable.cli.declare`), in the file of its group.

Exit status:

0    done, or whoever read the output has seen enough
1    internal error: one line; with VOCABLE_DEBUG=1 the traceback, too
2    user error: one line
130  interrupted from the keyboard; 129 and 143 by SIGHUP and SIGTERM

Of several processes that `torchrun` started, the first speaks for all.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated

import typer
from typer.main import get_command

from vocable import __version__
from vocable.cli import adapt, analyze, search, serve, train
from vocable.cli.declare import Groups, PlainHelp, command, command_name
from vocable.errors import ArgumentError, VocableError
from vocable.tables import visible

GROUPS = {"search": search, "train": train, "adapt": adapt, "analyze": analyze, "serve": serve}
RENAMED = {"score": "teacher-scores", "sample": "make-testset"}
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

COMMANDS = {command_name(one): one for group in GROUPS.values() for one in group.COMMANDS}


def program(verb: str | None = None) -> typer.Typer:
    """The command line; of one verb alone, the options of the others' verbs are not read."""
    app = typer.Typer(
        cls=Groups,
        help="Learned sparse retrieval: train, encode, search, measure and explain. Begin with: vocable demo",
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    app.callback()(_options)
    for title, group in GROUPS.items():
        for declared in group.COMMANDS:
            name = command_name(declared)
            taken = command(declared, whole=verb in (None, name))
            app.command(name, cls=PlainHelp, rich_help_panel=title.capitalize())(taken)
    return app


def _print_version(requested: bool) -> None:
    if requested:
        print(f"vocable {__version__}")
        raise typer.Exit


def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that comes with models; never without being asked.")
    ] = False,
) -> None:
    """What comes before a command."""
    if trust_remote_code:
        context.with_resource(import_module("vocable.encoder.hub").trusting(True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` name, by default those of the process, and return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    verb = next((word for word in words if not word.startswith("-")), "")
    silence()
    if not _is_first():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the rest of the process
    try:
        for word in words:
            if word.encode(errors="ignore").decode() != word:
                raise ArgumentError(f"{word!r}: an argument is text in UTF-8")
        if verb in RENAMED:
            raise ArgumentError(f"{verb} is now called {RENAMED[verb]}: vocable {RENAMED[verb]} --help")
        group = get_command(program(verb))
        with _signals_interrupt(), group.make_context("vocable", words or ["--help"]) as context:
            group.invoke(context)
        sys.stdout.flush()
    except BrokenPipeError:
        # Nothing can be written any more, not even what Python flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except typer.Exit as done:  # after --help, for one
        return done.exit_code
    except (KeyboardInterrupt, typer.Abort) as interrupt:
        status = 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)
        resumable = verb in COMMANDS and COMMANDS[verb].resumable
        return _fail(f"interrupted{'; the same command goes on from here' if resumable else ''}", status)
    except (VocableError, typer.TyperException, OSError) as error:
        return _fail(_reason(error), 2)
    except Exception as error:  # the last resort: whatever it is, the user gets one line
        first = str(error).strip().partition("\n")[0]
        what = f"{type(error).__name__}: {first}" if first else type(error).__name__
        return _fail(f"internal error: {what}; set VOCABLE_DEBUG=1 for the traceback", 1)
    return 0


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Have SIGTERM and SIGHUP end this process, not those it forks, as the keyboard does; `nohup` stays.

    Python drops an interrupt that comes within a destructor or a callback: it comes again a moment later.
    """
    process = os.getpid()

    def interrupt(number: int, frame: object) -> None:
        if os.getpid() == process:
            raise KeyboardInterrupt(number)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def again(dropped: sys.UnraisableHookArgs) -> None:
        if isinstance(dropped.exc_value, KeyboardInterrupt):
            number = dropped.exc_value.args[0] if dropped.exc_value.args else signal.SIGINT
            threading.Timer(0.01, os.kill, [os.getpid(), number]).start()
        else:
            before(dropped)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    mine = threading.current_thread() is threading.main_thread()
    taken = [number for number in numbers if mine and signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, interrupt)
    before, sys.unraisablehook = sys.unraisablehook, again
    try:
        yield
    finally:
        sys.unraisablehook = before
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def silence() -> None:
    """Turn off the libraries' bars, reports and warnings, unless VOCABLE_DEBUG is set; log ours as one line."""
    for name, handler in (("vocable", _OneLine(logging.INFO)), ("", logging.NullHandler())):
        logger = logging.getLogger(name)  # without any handler, Python prints other libraries' warnings
        if not any(type(known) is type(handler) for known in logger.handlers):
            logger.addHandler(handler)
    if not _debugging():
        warnings.simplefilter("ignore")
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)


class _OneLine(logging.Handler):
    """Prints what vocable logs in the form of its other messages."""

    def emit(self, record: logging.LogRecord) -> None:
        _print_line(record.getMessage())


def _is_first() -> bool:
    """Whether this is the only process, or the first of those that `torchrun` started."""
    return os.environ.get("RANK", "0") == "0"


def _fail(message: str, status: int) -> int:
    if status == 2 and not _is_first():
        time.sleep(GRACE)  # the first process has met the same mistake, and its end is that of this one
    if _debugging() and status < 128:
        traceback.print_exc()
    _print_line(message)
    return status


def _print_line(message: str) -> None:
    print(f"vocable: {visible(' '.join(message.split()))}", file=sys.stderr)


def _reason(error: BaseException) -> str:
    if isinstance(error, typer.TyperException):
        return error.format_message().replace("Value error, ", "")  # pydantic's, where typer asks it for choices
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _debugging() -> bool:
    return bool(os.environ.get("VOCABLE_DEBUG"))
