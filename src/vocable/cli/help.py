"""The help: a list of all commands, and a page for each."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from vocable.cli.command import Command, in_options
from vocable.cli.verbs import REQUIRED, Parameter, alternatives, first_line, read_verb
from vocable.cli.words import options_of
from vocable.core.hints import Values

WIDEST = 100  # columns of the help, in a wide terminal
COLUMN = 26  # columns of the names of options
UNBROKEN = "\N{NO-BREAK SPACE}"
# Headings for the options of a record, and for options that few need.
HELP_SECTIONS = ("Arguments", "Options", "Ranking", "Model", "Limits", "Rarely used")
RANKING_RECORDS = ["Matching", "RankingOptions", "RerankOptions", "SortOptions", "ListOptions", "AnswerOptions"]
HEADING_OF_RECORD = {
    **dict.fromkeys(RANKING_RECORDS, "Ranking"),
    **dict.fromkeys(("ModelInput", "Backend", "DocumentEncoding", "Pruning", "QueryEncoding", "load"), "Model"),
    "ServiceLimits": "Limits",
}
RARELY_USED = {"allow_changed_model", "engine_options", "skip_bad"}
METAVARS = {
    "MODEL": "model dense rerank teacher generator target embedding",
    "SOURCE": "texts corpus dataset queries judgments topics names testset",
    "VECTORS": "vectors query_vectors documents",
    "NAME": "measures variant variants",
    "PLACE": "index compare_with",
    "SCORES": "wacky scores",
    "SETTINGS": "grid",
    "SEARCH": "also",
    "FIELD": "sort facets",
    "ID": "like",
    "FILTER": "filter",
    "URL": "base_url",
    "TOKEN": "neighbours",
    "KEY=VALUE": "overrides",
    "KEY=V1,V2,...": "sweep",
}
METAVAR_OF_NAME = {name: metavar for metavar, names in METAVARS.items() for name in names.split()}
USAGE = """\
Usage: vocable COMMAND [ARGUMENTS] [OPTIONS]

  Learned sparse retrieval: train, encode, search, measure and explain.
  Begin with: vocable demo. For one command: vocable COMMAND --help
"""
GLOBAL = (
    ("--version", "Print the version."),
    ("--trust-remote-code", "Before a command: run code that comes with models; off by default."),
    ("--install-completion [SHELL]", "Install the completion of bash, zsh or fish, by default the shell of $SHELL."),
    ("--show-completion [SHELL]", "Print the script of the completion."),
    ("-h, --help", "Show this message and exit."),
)


def overview(groups: Mapping[str, Sequence[Command]]) -> str:
    """Return the list of all commands, by group."""
    rows = {group: [(command.name, first_line(command.verb)) for command in groups[group]] for group in groups}
    return "\n".join([USAGE, *map(_section, ["Options", *rows], [GLOBAL, *rows.values()])])


def page(command: Command) -> str:
    """Return the help of a command."""
    verb, width = read_verb(command.verb), _width()
    paragraphs = re.split(r"\n\n|\n(?=- )", "\n\n".join([verb.summary, verb.details]).strip())
    text = [_filled(in_options(" ".join(paragraph.split()), command), width, 2) for paragraph in paragraphs]
    rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    required_first = sorted(command.parameters.items(), key=lambda item: item[1].default is not REQUIRED)
    for name, parameter in required_first:
        heading = "Arguments" if name in command.words else _heading(parameter)
        rows.setdefault(heading, []).append((_label(command, parameter), _text(command, parameter)))
    rows["Options"].append(GLOBAL[-1])
    return "\n".join(
        [
            _filled(f"Usage: {usage(command)}", width, 0) + "\n",
            "\n\n".join(text) + "\n",
            f"  Example: vocable {command.name} {command.example}".rstrip() + "\n",
            *(_section(heading, rows[heading]) for heading in HELP_SECTIONS if rows.get(heading)),
        ]
    )


def usage(command: Command) -> str:
    """Return the form of a command: its arguments and the options that it needs."""
    parts = []
    for name, parameter in command.parameters.items():
        required = parameter.default is REQUIRED
        if name in command.words:
            word = name.upper() + ("..." if f"{name}..." in command.arguments.split() else "")
            parts.append(word if required else f"[{word}]")
        elif required:
            parts.append(f"{options_of(parameter)[0]} {metavar(parameter)}")
    return " ".join(["vocable", command.name, *parts, "[OPTIONS]"])


def _heading(parameter: Parameter) -> str:
    if parameter.name in RARELY_USED:
        return "Rarely used"
    return "Model" if parameter.name == "device" else HEADING_OF_RECORD.get(parameter.record, "Options")


def _label(command: Command, parameter: Parameter) -> str:
    if parameter.name in command.words:
        return parameter.name.upper()
    *names, last = options_of(parameter)
    names = ["/".join([names.pop(), last])] if last.startswith("--no-") and names else [*names, last]
    return f"{', '.join(names)} {metavar(parameter)}".rstrip()


def metavar(parameter: Parameter) -> str:
    """Return the word for the value of an option; a flag has none."""
    kinds = parameter.items or parameter.kinds
    if bool in kinds:
        return ""
    if parameter.name in METAVAR_OF_NAME and kinds & {str, Path}:
        return METAVAR_OF_NAME[parameter.name]
    if kinds & {Path, PathLike}:
        return "PATH"
    number = "" if str in kinds else "N" if int in kinds else "X" if float in kinds else ""
    number = f"{number},{number}..." if parameter.items and number else number
    return "|".join(filter(None, [number, *choices(parameter)])) or "TEXT"


def choices(parameter: Parameter) -> list[str]:
    """Return the words that an option takes, such as onnx and openvino."""
    literals = [kind for kind in alternatives(parameter.hint) if get_origin(kind) is Literal]
    return [str(word) for kind in literals for word in get_args(kind)]


def _text(command: Command, parameter: Parameter) -> str:
    """Return the help text of an argument, its limits and its default."""
    text = in_options(parameter.help, command).removesuffix(".") + "."
    if parameter.items and parameter.name not in command.words and str in parameter.items:
        text = f"{text.removesuffix('.')}; may be repeated."
    allowed = Values.of(parameter.hint)
    notes = [(allowed.items or allowed).short] if allowed else []
    if parameter.default not in (None, REQUIRED, ()) and parameter.default is not False:
        notes.append(f"default: {_shown(parameter.default)}")
    if parameter.default is REQUIRED and parameter.name not in command.words:
        notes.append("required")
    return " ".join([text, *(f"[{note}]".replace(" ", UNBROKEN) for note in notes if note)])


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_shown, value))
    return "all" if value is None else "on" if value is True else f"{value:g}" if type(value) is float else f"{value}"


def _section(heading: str, rows: Sequence[tuple[str, str]]) -> str:
    """Return rows of names and texts below a heading; a long name has a line of its own."""
    width, lines = _width(), [f"{heading}:"]
    column = max([len(name) for name, _ in rows if len(name) <= COLUMN], default=COLUMN) + 4
    for name, text in rows:
        wrapped = [line.replace(UNBROKEN, " ") for line in textwrap.wrap(text, width - column, break_on_hyphens=False)]
        if len(name) > column - 4:
            lines.append(f"  {name}")
        else:
            lines.append(f"  {name:{column - 2}}{wrapped.pop(0)}".rstrip())
        lines += [" " * column + line for line in wrapped]
    return "\n".join(lines) + "\n"


def _filled(text: str, width: int, indent: int) -> str:
    hanging = " " * (indent + 2 if text.startswith("- ") or not indent else indent)
    settings: Any = {"break_on_hyphens": False, "break_long_words": False}
    return textwrap.fill(text, width, initial_indent=" " * indent, subsequent_indent=hanging, **settings)


def _width() -> int:
    return min(shutil.get_terminal_size().columns, WIDEST)
