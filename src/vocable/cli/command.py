"""Plain functions as commands of typer.

`@command` registers a function as the command of its name. Typer reads its type hints, completed here: `Doc` is the
help text of an argument, the limits of its numbers stand behind it, and a record (`**options: Unpack[Encoding]`)
becomes an option for each field, left out of the call where it is not set. The function returns an `Outcome`, which is
printed.
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

    `repeated`: what it would have written was there already; None if the files tell.
    """

    result: Any = None
    written: Sequence[str | Path | None] = ()
    following: str = ""
    repeated: bool | None = None


class Command(NamedTuple):
    """A function of the command line and its place in the help.

    resumable: the same command continues interrupted work. reads: the function reads sources, and the command takes
    --skip-bad for them. json, markdown: the command takes these options.
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
    """Return a decorator that registers a function as the command of its name (`make_testset` as make-testset)."""

    def register(function: F) -> F:
        COMMANDS[command_name(function)] = Command(function, group, resumable, reads, json, markdown)
        return function

    return register


def quoted(path: object) -> str:
    """Return a path or an address as one word of a shell, for the command that may follow."""
    return shlex.quote(str(path))


def command_name(function: Callable[..., object]) -> str:
    """Return the name of a function on the command line."""
    return function.__name__.replace("_", "-")


def typer_function(declared: Command, *, with_options: bool = True) -> Callable[..., None]:
    """Return the function that typer reads and calls: it checks the values, calls the command and prints the outcome.

    Without options it only serves a list of commands, which is shown sooner.
    """
    parameters = _parameters(declared) if with_options else {}

    def run(**values: Any) -> None:
        as_json, markdown = values.pop("as_json", False), values.pop("markdown", False)
        output = values.get("output")
        before = _state(output)
        skip_bad = values.pop("skip_bad") if declared.reads else None
        try:
            given = _checked(declared, values)
            with nullcontext() if skip_bad is None else _reading(skip_bad):
                outcome = declared.function(**given)
                if outcome is not None:
                    same = before is not None and before == _state(output)
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
    """Print a result, the files written and the command that may follow."""
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
    """Return what changes when an output is replaced or gets a shard; None if it does not exist."""
    path = Path(re.sub(r"^[a-z]+:(?!//)", "", str(output or "")))  # the folder of exact:FOLDER
    if output is None or not path.exists():
        return None
    return path.stat().st_ino, sum(1 for _ in path.glob("shard-*")) if path.is_dir() else 0


def _checked(declared: Command, values: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of a command's function, without the options of records that are not set.

    Raises `ArgumentError` for an empty text, a number out of its limits or beyond 32 bits, and a model that is a file.
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
    hints, found = get_type_hints(declared.function, include_extras=True), dict[str, inspect.Parameter]()
    for name, parameter in inspect.signature(declared.function).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            for field, hint in record_fields(declared.function).items():
                found[field] = _parameter(field, hint | None, None)
        else:
            found[name] = _parameter(name, hints[name], parameter.default)
    shared = {"skip_bad": declared.reads, "markdown": declared.markdown, "as_json": declared.json}
    for name in (name for name, taken in shared.items() if taken):
        found[name] = _parameter(name, SHARED[name], 0 if name == "skip_bad" else False)
    for parameter in found.values():
        [info] = parameter.annotation.__metadata__
        info.help = _in_options(info.help, found)
    return found


def _parameter(name: str, hint: object, default: object) -> inspect.Parameter:
    """Return the parameter of an argument: its kind, typer option with help, limits and metavar, and default."""
    kind, metadata, values = _option_type(hint), _metadata(hint), Values.of(hint)
    info = copy(next((one for one in metadata if isinstance(one, ParameterInfo)), typer.Option()))
    kinds = [get_origin(one) or one for one in (*get_args(kind), kind)]
    info.help = info.help or next((one.documentation for one in metadata if isinstance(one, Doc)), "")
    limits = values and (values.items or values).short
    if list in kinds and (parser := _number_parser(hint)):
        info.callback, info.metavar = parser, info.metavar or "N,N..."
    elif list in kinds and not isinstance(info, ArgumentInfo):
        info.help = f"{info.help.removesuffix('.')}; may be repeated."
    info.help += f" [{limits}]" if limits else ""
    if isinstance(info, ArgumentInfo):
        info.metavar = info.metavar or name.upper()
    else:
        of_kind = next((METAVARS[one] for one in kinds if one in METAVARS), None)
        info.metavar = info.metavar or METAVARS_OF_NAMES.get(name, of_kind)
        if bool in kinds and not default and Default(True) not in metadata and info.default is ...:
            info.param_decls = (option(name),)  # without --no-NAME
        elif len(name) == 1 and info.default is ...:
            info.param_decls = (f"-{name}", option(name))
    default = ["all" if one is None else str(one) for one in default] if isinstance(default, tuple) else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def _alternatives(hint: object) -> list[Any]:
    """Return the plain types of a type hint."""
    if get_origin(hint) is Annotated:
        return _alternatives(get_args(hint)[0])
    if get_origin(hint) in (UnionType, Union):
        return [one for part in get_args(hint) for one in _alternatives(part)]
    return [hint]


def _metadata(hint: Any) -> list[Any]:
    """Return the metadata of a type hint and of its alternatives."""
    found = list(hint.__metadata__) if get_origin(hint) is Annotated else []
    nested = get_args(hint)[:1] if found else get_args(hint) if get_origin(hint) in (UnionType, Union) else ()
    return found + [one for part in nested for one in _metadata(part)]


def _option_type(hint: object) -> Any:
    """Return the type for typer: of several alternatives the one that a text of the command line can be."""
    kinds = {get_origin(one) or one: one for one in _alternatives(hint)}
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
    """Return the parser of a sequence of whole numbers; None of any other hint."""
    for part in _alternatives(hint):
        if get_origin(part) is Sequence and int in (kinds := _alternatives(get_args(part)[0])):
            others = ("all",) if NoneType in kinds else ()
            return lambda words: numbers(words, others)
    return None


def numbers(words: list[str], others: Sequence[str] = ()) -> list[int | None]:
    """Return the numbers of an option that may be repeated and holds several, separated by commas; None for `others`.

    >>> numbers(["5,all", "10"], others=["all"])
    [5, None, 10]
    """
    parts = [part.strip() for word in words for part in word.split(",")]
    if not all(part.isdecimal() or part in others for part in parts):
        raise typer.BadParameter("numbers with commas between, as 10,100")
    return [int(part) if part.isdecimal() else None for part in parts]


def option(name: str) -> str:
    """Return the option of an argument.

    >>> option("max_terms"), option("as_json")
    ('--max-terms', '--json')
    """
    return "--" + name.removeprefix("as_").replace("_", "-")


def _in_options(text: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    """Return a message or help text of a verb in the words of the command line: --max-terms for max_terms.

    An argument is recognized at the start of the text, by an underscore in its name, or by backquotes.
    """

    def translated(found: re.Match[str]) -> str:
        name = found[0].strip("`")
        if name not in parameters:
            return found[0]
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
        for name, one in self.commands.items():
            group = str(getattr(one, "rich_help_panel", None) or "Commands")
            groups.setdefault(group, []).append((name, one.get_short_help_str(width)))
        for group, rows in groups.items():
            with formatter.section(group):
                formatter.write_dl(rows, col_max=max(map(len, self.commands)))
