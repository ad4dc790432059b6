"""Commands that are declared: a class says what is particular to the command line, its verb says the rest.

The annotated attributes of a `Command` are arguments and options as typer reads them, for what a signature does not
say: a position, a short flag, a metavar, a text that becomes several numbers, what only the command has. Every other
argument of the verb, which is the function of the same name at the root, becomes an option by itself
(`vocable.cli.signature`); so do the default and the help text that an attribute leaves out. The docstring of the class
is the help of the command. The verb is imported when the command runs.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.models import ArgumentInfo
from typing_extensions import is_typeddict

from vocable import HOMES, imported, options
from vocable.cli.signature import REQUIRED, Argument, arguments
from vocable.errors import ArgumentError, UnwrittenError
from vocable.options import CountOrZero, Values
from vocable.tables import masked, visible

JSON = "as_json"  # last in the help of a command
NOTHING = Argument(None, REQUIRED, "", None)  # what a verb says of an attribute that only the command has


class Command:
    """The values of one command's arguments and options as attributes; `call` does what it says."""

    python_only: ClassVar[tuple[str, ...]] = ()  # arguments of the verb that are no options
    settings: ClassVar[str] = ""  # the class whose fields are the verb's **settings
    loading: ClassVar[tuple[str, ...]] = ()  # arguments of vocable.load that are options, where the verb takes a model
    resumable: ClassVar[bool] = False  # whether the same command goes on where it was killed
    writes: ClassVar[tuple[str, ...]] = ("output",)  # fields that name files or folders to write
    next_step: ClassVar[str] = ""  # what may be done with {output}
    has_json: ClassVar[bool] = True
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else there.")] = False
    outcome = "written"

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """An option that is read from the verb."""

    @classmethod
    def verb(cls) -> str:
        """The name of the verb at the root."""
        return command_name(cls).replace("-", "_")

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of the verb: the values, as the verb calls them, and of sources of texts a stream."""
        given = {name: value for name, value in vars(self).items() if name not in (JSON, "markdown")}
        if "options" in inspect.signature(imported(HOMES[self.verb()])).parameters:  # those not given are left out
            records = [one for one in vars(options).values() if is_typeddict(one)]
            shared = {name for record in records for name in record.__annotations__}
            given = {name: value for name, value in given.items() if value is not None or name not in shared}
        if isinstance(given.get("texts"), list):
            given["texts"] = texts_of(given["texts"])
        return given

    def call(self) -> Any:
        """Call the verb and give back its result."""
        return imported(HOMES[self.verb()])(**self.arguments())

    def show(self, result: Any) -> None:
        """Print the result, where it was written, and what may come next."""
        output = getattr(self, "output", None)
        if self.as_json:
            values = result.to_json() if hasattr(result, "to_json") else result
            written = {} if output is None else {"output": masked(str(output))}
            print_json(written | (values or {}) if isinstance(values, dict | None) else values)
            return
        show(self.text(result))
        files = [masked(str(getattr(self, name))) for name in self.writes if getattr(self, name, None) is not None]
        if files and not getattr(self, "markdown", False):
            show(f"{self.outcome}: {', '.join(files)}")
            if following := self.following():
                show(f"next: {following.format(output=masked(str(output)))}")

    def text(self, result: Any) -> Any:
        """What `show` prints of the result, where it is not JSON."""
        return result.markdown() if getattr(self, "markdown", False) else result

    def following(self) -> str:
        """What may be done with {output}; "" for nothing."""
        return self.next_step


def command(declared: type[Command], *, whole: bool = True) -> Callable[..., None]:
    """A function for `typer.Typer.command` that takes what a command takes, runs it and prints its result.

    Not whole, it takes what is declared alone, and the verb's source is not read: enough for a list of commands.
    """

    def run(**values: Any) -> None:
        settings, before = declared(**values), _state(values.get("output"))
        try:
            check(values, taken)
            with _tolerating(values.get("skip_bad")):
                result = settings.call()
                if before is not None and before == _state(values["output"]):
                    settings.outcome = "already there, made with the same settings"
                settings.show(result)
        except UnwrittenError as error:
            settings.show(error.result) if settings.as_json else show(settings.text(error.result))
            raise
        except ArgumentError as error:
            raise ArgumentError(_in_options(str(error), parameters)) from error

    run.__name__, run.__doc__ = declared.__name__, inspect.getdoc(declared)
    taken = arguments(HOMES[declared.verb()], declared.settings) if whole else {}
    if whole and declared.loading:
        loaded = arguments(HOMES["load"])
        taken |= {name: loaded[name] for name in declared.loading}
    parameters = _parameters(declared, taken)
    for parameter in parameters.values():
        [info] = parameter.annotation.__metadata__
        info.help = _in_options(info.help, parameters)
    run.__signature__ = inspect.Signature([*parameters.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return run


def _tolerating(bad_lines: int | None) -> AbstractContextManager[Any]:
    """The block in which a command reads, if it reads at all, and tolerates so many bad lines."""
    if bad_lines is None:
        return nullcontext()
    block: AbstractContextManager[Any] = imported("vocable.data:tolerating")(bad_lines)
    return block


def _state(output: str | Path | None) -> tuple[int, int] | None:
    """What changes when something else takes the place of an output, or a shard is added; None if nothing is there."""
    path = Path(re.sub(r"^[a-z]+:(?!//)", "", str(output or "")))  # of exact:FOLDER the folder
    if output is None or not path.exists():
        return None
    return path.stat().st_ino, sum(1 for _ in path.glob("shard-*")) if path.is_dir() else 0


FILES = (".jsonl", ".json", ".tsv", ".txt")  # of texts, which come after the model


def check(values: dict[str, Any], taken: dict[str, Argument]) -> None:
    """Raise `ArgumentError` for what an option cannot be in any command, before its verb reads anything.

    Texts are not empty, numbers finite and in their range, whole ones of 32 bits.
    """
    for name, given in values.items():
        allowed = taken.get(name, NOTHING).values
        if given is not None and allowed is not None:
            allowed.check(name, given)
        beyond = 1 << (32 if name == "seed" else 31)
        for value in given if isinstance(given, list) else [given]:
            if value == "":
                raise ArgumentError(f"{name} must not be empty")
            if isinstance(value, float) and not math.isfinite(value):
                raise ArgumentError(f"{name} must be a finite number, not {value}")
            if type(value) is int and value >= beyond:
                raise ArgumentError(f"{name} must be below {beyond}, not {value}")
    if isinstance(model := values.get("model"), str) and Path(model).suffix in FILES and Path(model).is_file():
        raise ArgumentError(f"model must be a folder, a Hub id or vocable-mini, not the file {model!r}")


def command_name(declared: type[Command]) -> str:
    """The name of a command, which is that of its class.

    >>> class MakeTestset(Command): ...
    >>> command_name(MakeTestset)
    'make-testset'
    """
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in declared.__name__).strip("-")


def _parameters(declared: type[Command], taken: dict[str, Argument]) -> dict[str, inspect.Parameter]:
    """What a command takes: its attributes, and before each of them the arguments that precede it in its verb."""
    hints = get_type_hints(declared, include_extras=True)
    own = {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}
    as_json = own.pop(JSON)
    names, left = list[str](), [name for name in taken if name not in declared.python_only]
    for name in own:
        if name in left:
            names += [before for before in left[: left.index(name)] if before not in own]
            left = left[left.index(name) + 1 :]
        names.append(name)
    names += [name for name in left if name not in own]
    if declared.has_json:
        own[JSON] = as_json
        names.append(JSON)
    return {name: _parameter(name, taken.get(name, NOTHING), declared, own.get(name)) for name in names}


METAVARS = {int: "N", float: "X", str: "TEXT", list: "TEXT", Path: "PATH"}


def _parameter(name: str, argument: Argument, declared: type[Command], hint: Any) -> inspect.Parameter:
    """An attribute with this hint, or where there is none an argument of the verb, as typer reads it."""
    kind, *_, info = get_args(hint) if hint is not None else (argument.type, typer.Option())
    if kind is None:
        raise TypeError(
            f"{name}: the command line has no form for this argument: declare it, or name it in python_only"
        )
    default = getattr(declared, name, argument.default)
    info = copy(info)
    info.help = info.help or argument.help
    kinds = [get_origin(one) or one for one in (*get_args(kind), kind)]
    values = argument.values or Values.of(hint)
    if values is not None and (limits := (values.items or values).short):
        info.help += f" [{limits}]"
    if isinstance(info, ArgumentInfo):
        info.metavar = info.metavar or name.upper()
    else:
        info.metavar = info.metavar or next((METAVARS[one] for one in kinds if one in METAVARS), None)
        if list in kinds and info.callback is None:
            info.help = f"{info.help.removesuffix('.')}; may be repeated."
        elif kind is bool and not default and info.default is ...:
            info.param_decls = (option(name),)  # on or absent: no --no-NAME
    default = list(map(str, default)) if isinstance(default, tuple) else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def option(name: str) -> str:
    """The option of an argument.

    >>> option("max_terms"), option("as_json")
    ('--max-terms', '--json')
    """
    return "--" + name.removeprefix("as_").replace("_", "-")


def _in_options(text: str, parameters: dict[str, inspect.Parameter]) -> str:
    """A message or help text of a verb in the words of the command line: "max_terms must be 1" is about --max-terms.

    An argument is known by its first place in the text, the _ in its name, or backquotes; others are words like any.
    """

    def said(found: re.Match[str]) -> str:
        name = found[0].strip("`")
        if name not in parameters:
            return found[0]
        [info] = parameters[name].annotation.__metadata__
        return name.upper() if isinstance(info, ArgumentInfo) else option(name)

    return re.sub(r"^[a-z]\w*(?=[: ])|(?<=[a-z] )[a-z]+(_[a-z]+)+(?![^\s),:;])|`\w+`", said, text)


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
        """In the order in which they were declared."""
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


def show(result: Any) -> None:
    """Print a result as text, or those of a list or stream; None has no text."""
    if isinstance(result, list | Iterator):
        for one in result:
            show(one)
    elif result is not None:
        print("\n".join(map(visible, str(result).split("\n"))))


def print_json(values: Any, *, indent: int | None = 2) -> None:
    """Print JSON values; `indent=None` puts them on one line, for output that is a stream of objects.

    NaN and infinite numbers, which JSON does not have, are printed as null.
    """
    text = json.dumps(_finite(values), indent=indent, ensure_ascii=False, allow_nan=False)
    print(re.sub(r"[^\n -~]", lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], text))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_text(text: str) -> str:
    """The text itself, or with an @ in front the content of a file.

    Raises:
        ArgumentError: the file is not there, a device, or not UTF-8.
    """
    if not text.startswith("@"):
        return text
    if Path(text[1:]).is_char_device():  # a pipe will do
        raise ArgumentError(f"{text[1:]}: not a regular file")
    try:
        return Path(text[1:]).read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise ArgumentError(f"{text[1:]}: no such file (a text that begins with @ names one)") from error
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{text[1:]}: not UTF-8") from error


def numbers(words: list[str]) -> list[int]:
    """The numbers of an option that may be repeated, and has commas between.

    >>> numbers(["5,20", "10"])
    [5, 20, 10]
    """
    parts = [part.strip() for word in words for part in word.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise typer.BadParameter("numbers with commas between, as 10,100")
    return [int(part) for part in parts]


# Arguments and options that several commands have, with one meaning.
Numbers = Annotated[list[str], typer.Option(metavar="N,N...", callback=numbers)]
Model = Annotated[str, typer.Argument(help="vocable-mini, a folder, or a Hub id.")]
Texts = Annotated[list[str], typer.Argument(help="Sources of texts, such as a file or pydocs:.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="Folder for the result; there only when it is whole.")]
MaxLength = Annotated[int | None, typer.Option(help="Tokens per text, in place of the model's own length.")]
Measures = Annotated[
    list[str] | None,
    typer.Option("-m", "--measures", metavar="NAME"),
]


class Loading(Command):
    """A command whose `model` is loaded, and whose `texts` are read, before the verb is called."""

    loading: ClassVar[tuple[str, ...]] = ("new_head", "special_terms", "pooling", "activation", "device")
    model: Model

    def arguments(self) -> dict[str, Any]:
        """The loaded model, and the other values: a source of texts that is not there is known at once."""
        given = super().arguments()
        options = {name: given.pop(name) for name in self.loading}
        named = {name: value for name, value in options.items() if value}
        return given | {"model": imported("vocable.encoder.load:load")(given["model"], **named)}


class Reading(Command):
    """A command that reads sources for its verb, which is given what is in them."""

    skip_bad: Annotated[
        CountOrZero, typer.Option(help="Bad lines in what is read that are tolerated, and left out.")
    ] = 0

    def arguments(self) -> dict[str, Any]:
        """The values without the number of bad lines."""
        given = super().arguments()
        del given["skip_bad"]
        return given


def texts_of(sources: list[str]) -> Iterator[str] | None:
    """The texts of all sources, which must be there; None of no source."""
    streams = [imported("vocable.data:read_texts")(source) for source in sources]
    return chain.from_iterable(streams) if streams else None
