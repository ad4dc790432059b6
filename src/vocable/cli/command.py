"""Turn plain functions into typer commands.

`@command` registers a function as the command with its name. This module completes the type hints that typer reads:
`Doc` becomes the help text of an argument, followed by the limits of numbers. A record (`**options: Unpack[Encoding]`)
becomes an option for each field; a field that is not set is left out of the call. The function returns an `Outcome`,
which is printed.
"""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.models import ArgumentInfo, ParameterInfo
from typing_extensions import Doc, Unpack

from vocable.cli.output import print_json, show
from vocable.core.hints import Values
from vocable.core.tables import masked
from vocable.errors import ArgumentError, UnwrittenError
from vocable.options import CountOrZero, Default, check_arguments

F = TypeVar("F", bound=Callable[..., Any])

METAVARS = {int: "N", float: "X", str: "TEXT", list: "TEXT", Path: "PATH"}
METAVARS_OF_NAMES = {"rerank": "MODEL", "sort": "FIELD", "like": "ID", "filter": "FILTER"}
TEXT_FILES = (".jsonl", ".json", ".tsv", ".txt")


class Outcome(NamedTuple):
    """The result of a command, the files or folders that it wrote, and a command that may follow.

    `repeated` says whether the output already existed; if it is None, the files are compared.
    """

    result: Any = None
    written: Sequence[str | Path | None] = ()
    following: str = ""
    repeated: bool | None = None


class Command(NamedTuple):
    """A function of the command line and its place in the help.

    Attributes:
        function: the function.
        group: heading of the command in the help.
        resumable: whether repeating the command continues interrupted work.
        reads: whether the function reads sources, so that the command takes --skip-bad.
        json: whether the command takes --json.
        markdown: whether the command takes --markdown.
    """

    function: Callable[..., Outcome | None]
    group: str
    resumable: bool
    reads: bool
    json: bool
    markdown: bool


COMMANDS: dict[str, Command] = {}
SHARED = {
    "skip_bad": Annotated[CountOrZero, Doc("Number of malformed lines to skip; one more is an error.")],
    "markdown": Annotated[bool, Doc("Print a markdown table.")],
    "as_json": Annotated[bool, Doc("Print JSON on stdout, and nothing else there.")],
}


def command(
    group: str, *, resumable: bool = False, reads: bool = False, json: bool = True, markdown: bool = False
) -> Callable[[F], F]:
    """Return a decorator that registers a function as the command with its name (make-testset for `make_testset`)."""

    def register(function: F) -> F:
        COMMANDS[command_name(function)] = Command(function, group, resumable, reads, json, markdown)
        return function

    return register


def quoted(path: object) -> str:
    """Return a path or an address as a single shell word, for the command that may follow."""
    return shlex.quote(str(path))


def command_name(function: Callable[..., object]) -> str:
    """Return the name of a function on the command line."""
    return function.__name__.replace("_", "-")


def typer_function(declared: Command, *, with_options: bool = True) -> Callable[..., None]:
    """Return the function that typer reads and calls: it checks the values, calls the command and prints the outcome.

    Without options, the function only serves to list the commands, which is faster.
    """
    parameters = _parameters(declared) if with_options else {}

    def run(**values: Any) -> None:
        as_json, markdown = values.pop("as_json", False), values.pop("markdown", False)
        output = values.get("output")
        previous_state = _state(output)
        skip_bad = values.pop("skip_bad") if declared.reads else None
        try:
            given = _checked(declared, values)
            with nullcontext() if skip_bad is None else _reading(skip_bad):
                outcome = declared.function(**given)
                if outcome is not None:
                    same = previous_state is not None and previous_state == _state(output)
                    repeated = same if outcome.repeated is None else outcome.repeated
                    _print(outcome, repeated, as_json, markdown, output)
        except UnwrittenError as error:
            _print(Outcome(error.result), False, as_json, markdown, output)
            raise
        except ArgumentError as error:
            raise ArgumentError(_in_options(str(error), parameters)) from error

    run.__name__, run.__doc__ = declared.function.__name__, inspect.getdoc(declared.function)
    run.__signature__ = inspect.Signature([*parameters.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return run


def _reading(skip_bad: int) -> AbstractContextManager[object]:
    from vocable.data import tolerating

    return tolerating(skip_bad)


def _print(outcome: Outcome, repeated: bool, as_json: bool, markdown: bool, output: str | Path | None) -> None:
    """Print a result, the written files and the command that may follow."""
    result = outcome.result
    if as_json and isinstance(result, Iterator):
        for item in result:
            print_json(item.to_json(), indent=None)
        return
    if as_json:
        values = result.to_json() if hasattr(result, "to_json") else result
        written = {} if output is None else {"output": masked(str(output))}
        print_json(written | (values or {}) if isinstance(values, dict | None) else values)
        return
    show(result.markdown() if markdown else result)
    files = [masked(str(file)) for file in outcome.written if file is not None]
    if files and not markdown:
        show(f"{'already there, made with the same settings' if repeated else 'written'}: {', '.join(files)}")
    if outcome.following and not markdown:
        following = masked(outcome.following)
        show(f"next{'' if following == outcome.following else ', with the password for ***'}: {following}")


def _state(output: str | Path | None) -> tuple[int, int] | None:
    """Return a state that changes when an output is replaced or gets a shard; None if the output does not exist."""
    path = Path(re.sub(r"^[a-z]+:(?!//)", "", str(output or "")))  # the folder in exact:FOLDER
    if output is None or not path.exists():
        return None
    return path.stat().st_ino, sum(1 for _ in path.glob("shard-*")) if path.is_dir() else 0


def _checked(declared: Command, values: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of a command's function, without the options of records that are not set.

    Raises `ArgumentError` for an empty text, for a number out of its limits or beyond 32 bits, and for a model that is
    a file.
    """
    fields = record_fields(declared.function)
    given = {name: value for name, value in values.items() if value is not None or name not in fields}
    for name, value in given.items():
        beyond = 1 << (32 if name == "seed" else 31)
        for item in value if isinstance(value, list) else [value]:
            if item == "":
                raise ArgumentError(f"{name} must not be empty")
            if type(item) is int and item >= beyond:
                raise ArgumentError(f"{name} must be below {beyond}, not {item}")
    if isinstance(model := values.get("model"), str) and Path(model).suffix in TEXT_FILES and Path(model).is_file():
        raise ArgumentError(f"model must be a folder, a Hub id or vocable-mini, not the file {model!r}")
    return check_arguments(declared.function, given)


def record_fields(function: Callable[..., object]) -> dict[str, Any]:
    """Return the fields of a function's record (`**options: Unpack[RECORD]`) with their type hints."""
    hints = get_type_hints(function, include_extras=True).values()
    records = [get_args(hint)[0] for hint in hints if get_origin(hint) is Unpack]
    return get_type_hints(records[0], include_extras=True) if records else {}


def _parameters(declared: Command) -> dict[str, inspect.Parameter]:
    """Return the parameters of a command as typer reads them."""
    hints, parameters = get_type_hints(declared.function, include_extras=True), dict[str, inspect.Parameter]()
    for name, parameter in inspect.signature(declared.function).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            for field, hint in record_fields(declared.function).items():
                parameters[field] = _parameter(field, hint | None, None)
        else:
            parameters[name] = _parameter(name, hints[name], parameter.default)
    shared = {"skip_bad": declared.reads, "markdown": declared.markdown, "as_json": declared.json}
    for name in (name for name, taken in shared.items() if taken):
        parameters[name] = _parameter(name, SHARED[name], 0 if name == "skip_bad" else False)
    for parameter in parameters.values():
        [info] = parameter.annotation.__metadata__
        info.help = _in_options(info.help, parameters)
    return parameters


def _parameter(name: str, hint: object, default: object) -> inspect.Parameter:
    """Return the parameter for an argument: its type, its default, and a typer option with help and metavar."""
    kind, metadata, values = _option_type(hint), _metadata(hint), Values.of(hint)
    info = copy(next((item for item in metadata if isinstance(item, ParameterInfo)), typer.Option()))
    kinds = [get_origin(part) or part for part in (*get_args(kind), kind)]
    info.help = info.help or next((item.documentation for item in metadata if isinstance(item, Doc)), "")
    limits = values and (values.items or values).short
    if list in kinds and (parser := _number_parser(hint)):
        info.callback, info.metavar = parser, info.metavar or "N,N..."
    elif list in kinds and not isinstance(info, ArgumentInfo):
        info.help = f"{info.help.removesuffix('.')}; may be repeated."
    info.help += f" [{limits}]" if limits else ""
    if isinstance(info, ArgumentInfo):
        info.metavar = info.metavar or name.upper()
    else:
        of_kind = next((METAVARS[part] for part in kinds if part in METAVARS), None)
        info.metavar = info.metavar or METAVARS_OF_NAMES.get(name, of_kind)
        if bool in kinds and not default and Default(True) not in metadata and info.default is ...:
            info.param_decls = (option(name),)  # without --no-NAME
        elif len(name) == 1 and info.default is ...:
            info.param_decls = (f"-{name}", option(name))
    default = ["all" if value is None else str(value) for value in default] if isinstance(default, tuple) else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def _alternatives(hint: object) -> list[Any]:
    """Return the plain types of a type hint."""
    if get_origin(hint) is Annotated:
        return _alternatives(get_args(hint)[0])
    if get_origin(hint) in (UnionType, Union):
        return [kind for part in get_args(hint) for kind in _alternatives(part)]
    return [hint]


def _metadata(hint: Any) -> list[Any]:
    """Return the metadata of a type hint and of its alternatives."""
    metadata = list(hint.__metadata__) if get_origin(hint) is Annotated else []
    nested = get_args(hint)[:1] if metadata else get_args(hint) if get_origin(hint) in (UnionType, Union) else ()
    return metadata + [item for part in nested for item in _metadata(part)]


def _option_type(hint: object) -> Any:
    """Return the type for typer: among alternatives, the type that a word of the command line can have."""
    kinds = {get_origin(kind) or kind: kind for kind in _alternatives(hint)}
    if Sequence in kinds:
        chosen: Any = list[str]
    elif Literal in kinds:
        chosen = kinds[Literal]
    else:
        chosen = next((kind for kind in (Path, bool, int, float, str) if kind in kinds), None)
    if chosen is None:
        raise TypeError(f"{hint}: no option of the command line can be this")
    return chosen | None if NoneType in kinds else chosen


def _number_parser(hint: object) -> Callable[[list[str]], list[int | None]] | None:
    """Return the parser for a sequence of whole numbers; None for any other hint."""
    for part in _alternatives(hint):
        if get_origin(part) is Sequence and int in (kinds := _alternatives(get_args(part)[0])):
            others = ("all",) if NoneType in kinds else ()
            return lambda words: numbers(words, others)
    return None


def numbers(words: list[str], others: Sequence[str] = ()) -> list[int | None]:
    """Return the numbers of a repeatable option with commas between numbers; None for a word in `others`.

    >>> numbers(["5,all", "10"], others=["all"])
    [5, None, 10]
    """
    parts = [part.strip() for word in words for part in word.split(",")]
    if not all(part.isdecimal() or part in others for part in parts):
        raise typer.BadParameter("numbers with commas between, as 10,100")
    return [int(part) if part.isdecimal() else None for part in parts]


def option(name: str) -> str:
    """Return the option for an argument.

    >>> option("max_terms"), option("as_json")
    ('--max-terms', '--json')
    """
    return "--" + name.removeprefix("as_").replace("_", "-")


def _in_options(text: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    """Translate a verb's message or help text for the command line: max_terms becomes --max-terms.

    An argument is recognized at the start of the text, by an underscore in its name, or by backquotes.
    """

    def translated(match: re.Match[str]) -> str:
        name = match[0].strip("`")
        if name not in parameters:
            return match[0]
        [info] = parameters[name].annotation.__metadata__
        return name.upper() if isinstance(info, ArgumentInfo) else option(name)

    return re.sub(r"^[a-z]\w*(?=[: ])|(?<=[a-z] )[a-z]+(_[a-z]+)+(?![^\s),:;])|`\w+`", translated, text)


class PlainHelp(TyperCommand):
    """A command whose help does not name the Python types of its arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            if isinstance(parameter, TyperArgument):
                parameter.display_type_rich = lambda ctx: None  # type: ignore[method-assign]


class Groups(TyperGroup):
    """A help page that lists the commands by group (`rich_help_panel`)."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of registration."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each group."""
        groups: dict[str, list[tuple[str, str]]] = {}
        width = formatter.width - 6 - max(map(len, self.commands))
        for name, subcommand in self.commands.items():
            group = str(getattr(subcommand, "rich_help_panel", None) or "Commands")
            groups.setdefault(group, []).append((name, subcommand.get_short_help_str(width)))
        for group, rows in groups.items():
            with formatter.section(group):
                formatter.write_dl(rows, col_max=max(map(len, self.commands)))
