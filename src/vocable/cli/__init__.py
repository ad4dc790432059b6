"""The command line: each command is a verb (`vocable.cli.command`), with a file for each group.

The idea: a command has no options of its own; it reads them from the signature and the docstring of its verb.

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
from contextlib import AbstractContextManager, nullcontext
from difflib import get_close_matches
from itertools import takewhile

from vocable import __version__
from vocable.cli.adapt import ADAPTATION_COMMANDS
from vocable.cli.command import execute
from vocable.cli.evaluate import ANALYSIS_COMMANDS, EVALUATION_COMMANDS
from vocable.cli.help import overview, page
from vocable.cli.output import show
from vocable.cli.search import SEARCH_COMMANDS, SERVING_COMMANDS
from vocable.cli.signals import signals_interrupt
from vocable.cli.train import TRAINING_COMMANDS
from vocable.cli.words import arguments_of
from vocable.core.tables import visible
from vocable.core.threads import tune_threads
from vocable.errors import ArgumentError, VocableError, naming_extra

GROUPS = {
    "Search": (*SEARCH_COMMANDS, *EVALUATION_COMMANDS),
    "Train": TRAINING_COMMANDS,
    "Adapt": ADAPTATION_COMMANDS,
    "Analyze": ANALYSIS_COMMANDS,
    "Serve": SERVING_COMMANDS,
}
COMMANDS = {command.name: command for commands in GROUPS.values() for command in commands}
HELP = {"-h", "--help"}
COMPLETION = {"--install-completion", "--show-completion"}
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
        with naming_extra(), signals_interrupt():
            _run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # Nothing can be written any more, so discard what Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt as interrupt:
        status = 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)
        resumable = verb in COMMANDS and COMMANDS[verb].has("resumes")
        return _fail(f"interrupted{'; the same command resumes' if resumable else ''}", status)
    except (VocableError, OSError) as error:
        return _fail(_reason(error), 2)
    except Exception as error:  # the last resort: the user always gets one line
        first = str(error).strip().partition("\n")[0]
        message = f"{type(error).__name__}: {first}" if first else type(error).__name__
        return _fail(f"internal error: {message}; set VOCABLE_DEBUG=1 for the traceback", 1)
    return 0


def _run(words: list[str]) -> None:
    """Carry out a command, or print the version or a page of the help."""
    options = list(takewhile(lambda word: word.startswith("-"), words))
    name, *rest = words[len(options) :] or [""]
    if unknown := {*options} - HELP - COMPLETION - {"--version", "--trust-remote-code"}:
        raise ArgumentError(f"{unknown.pop()} is no option before a command (see vocable --help)")
    if "--version" in options:
        print(f"vocable {__version__}")
    elif COMPLETION & {*options}:
        _complete(options[0], name, rest)
    elif not name or HELP & {*options}:
        print(overview(GROUPS), end="")
    elif name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, 1, 0.7)
        raise ArgumentError(f"no command {name!r} ({f'did you mean {near[0]}?' if near else 'see vocable --help'})")
    elif HELP & {*takewhile(lambda word: word != "--", rest)}:
        print(page(COMMANDS[name]), end="")
    else:
        arguments = arguments_of(COMMANDS[name], rest)
        with _trusting() if "--trust-remote-code" in options else nullcontext():
            execute(COMMANDS[name], arguments)


def _complete(flag: str, shell: str, rest: Sequence[str]) -> None:
    from vocable.cli.completion import install_completion, script, shell_of

    if rest:
        raise ArgumentError(f"{rest[0]!r} is one word too many after {flag} {shell}")
    show(install_completion(shell, COMMANDS) if flag.startswith("--install") else script(shell_of(shell), COMMANDS))


def _trusting() -> AbstractContextManager[None]:
    from vocable.encoding.hub import trusting

    return trusting(True)


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
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _debugging() -> bool:
    return bool(os.environ.get("VOCABLE_DEBUG"))
