"""The command line: plain functions, with a file for each group (`vocable.cli.command`).

Exit status:

0    success, also if the reader of the output has closed it
1    internal error, reported in one line; with VOCABLE_DEBUG=1 also the traceback
2    user error, reported in one line
130  interrupted from the keyboard; 129 and 143: interrupted by SIGHUP and SIGTERM

If `torchrun` started several processes, only the first prints.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from vocable import __version__
from vocable.cli import adapt, analyze, evaluate, search, serve, train  # importing a module registers its commands
from vocable.cli.command import COMMANDS, Groups, PlainHelp, typer_function
from vocable.cli.signals import signals_interrupt
from vocable.core.tables import visible
from vocable.core.threads import tune_threads
from vocable.errors import ArgumentError, VocableError, naming_extra

MODULES = (search, evaluate, train, adapt, analyze, serve)  # in the order of the help
GRACE = 10.0  # seconds that other processes wait, so that the first can report an error
QUIET = {
    "TRANSFORMERS_VERBOSITY": "critical",
    "HF_HUB_VERBOSITY": "critical",
    "DATASETS_VERBOSITY": "critical",
    "TQDM_DISABLE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",  # including the "Loading weights" bar
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "true",  # set explicitly, to avoid a warning at every fork
}
MOST_SHOWN = 4000  # characters of a message, since a message may repeat a long argument


def program(verb: str | None = None) -> typer.Typer:
    """Return the command line; with a verb, only this command gets its arguments and options."""
    app = typer.Typer(
        cls=Groups,
        help="Learned sparse retrieval: train, encode, search, measure and explain. Begin with: vocable demo",
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    app.callback()(_options)
    for module in MODULES:
        for name, declared in COMMANDS.items():
            if declared.function.__module__ == module.__name__:
                function = typer_function(declared, with_options=verb in (None, name))
                app.command(name, cls=PlainHelp, rich_help_panel=declared.group)(function)
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
        bool, typer.Option("--trust-remote-code", help="Run code that comes with models; off by default.")
    ] = False,
) -> None:
    """Apply the options that stand before a command."""
    if trust_remote_code:
        from vocable.encoding.hub import trusting

        context.with_resource(trusting(True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command in `arguments`, by default the process's arguments, and return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    verb = next((word for word in words if not word.startswith("-")), "")
    silence()
    tune_threads()
    if not _is_first():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - stays open until the process ends
    try:
        for word in words:
            if word.encode(errors="ignore").decode() != word:
                raise ArgumentError(f"{word!r}: an argument is text in UTF-8")
        group = get_command(program(verb))
        with naming_extra(), signals_interrupt(), group.make_context("vocable", words or ["--help"]) as context:
            group.invoke(context)
        sys.stdout.flush()
    except BrokenPipeError:
        # Nothing can be written any more, so discard what Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except typer.Exit as done:  # for example after --help
        return done.exit_code
    except (KeyboardInterrupt, typer.Abort) as interrupt:
        status = 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)
        resumable = verb in COMMANDS and COMMANDS[verb].resumable
        return _fail(f"interrupted{'; the same command resumes' if resumable else ''}", status)
    except (VocableError, typer.TyperException, OSError) as error:
        return _fail(_reason(error), 2)
    except Exception as error:  # the last resort: the user always gets one line
        first = str(error).strip().partition("\n")[0]
        message = f"{type(error).__name__}: {first}" if first else type(error).__name__
        return _fail(f"internal error: {message}; set VOCABLE_DEBUG=1 for the traceback", 1)
    return 0


def silence() -> None:
    """Log our messages as single lines, and, unless VOCABLE_DEBUG is set, silence progress bars and libraries."""
    for name, handler in (("vocable", _OneLine(logging.INFO)), ("", logging.NullHandler())):
        logger = logging.getLogger(name)  # without any handler, Python prints the warnings of other libraries
        if not any(type(other) is type(handler) for other in logger.handlers):
            logger.addHandler(handler)
    if not _debugging():
        warnings.simplefilter("ignore")
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)


class _OneLine(logging.Handler):
    """Prints log records like other messages."""

    def emit(self, record: logging.LogRecord) -> None:
        _print_line(record.getMessage())


def _is_first() -> bool:
    """Return whether this is the only process, or the first process that `torchrun` started."""
    return os.environ.get("RANK", "0") == "0"


def _fail(message: str, status: int) -> int:
    if status == 2 and not _is_first():
        time.sleep(GRACE)  # the first process hits the same error, and torchrun then ends this process
    if _debugging() and status < 128:
        traceback.print_exc()
    _print_line(message if len(message) <= MOST_SHOWN else f"{message[:MOST_SHOWN]}…")
    return status


def _print_line(message: str) -> None:
    print(f"vocable: {visible(' '.join(message.split()))}", file=sys.stderr)


def _reason(error: BaseException) -> str:
    if isinstance(error, typer.TyperException):
        return error.format_message().replace("Value error, ", "")  # a prefix by pydantic, which typer uses for choices
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _debugging() -> bool:
    return bool(os.environ.get("VOCABLE_DEBUG"))
