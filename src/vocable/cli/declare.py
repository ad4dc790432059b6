"""Commands that are declared: a settings model says what a command takes, a function does it, its result is printed.

A command is a subclass of `Command`. Its fields are its arguments and options, in their order: the name, type, range
(`ge`, `le`), choices (`Literal`) and default of a field are those of the option, its description is the help text, and
`typer.Argument(...)` or `typer.Option(...)` in its `Annotated` gives a position, a short flag or a metavar. Its
docstring is the help of the command, and `verb` the function, imported only when the command runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from copy import copy
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typer.core import TyperGroup
from typer.models import ArgumentInfo, OptionInfo, ParameterInfo

from vocable.cli.output import print_json, show
from vocable.errors import ArgumentError

JSON = "as_json"  # last in the help of a command


class Command(BaseModel):
    """The settings of one command; `call` does what it says."""

    model_config = ConfigDict(
        extra="forbid", defer_build=True, frozen=True, validate_default=True, protected_namespaces=()
    )

    verb: ClassVar[str] = ""  # "vocable.analysis.removal:removal"
    resumable: ClassVar[bool] = False  # whether the same command goes on where it was killed
    writes: ClassVar[tuple[str, ...]] = ("output",)  # fields that name files or folders to write
    next_step: ClassVar[str] = ""  # what may be done with {output}
    has_json: ClassVar[bool] = True
    as_json: Annotated[
        bool, typer.Option("--json"), Field(description="Print JSON on stdout, and nothing else there.")
    ] = False

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of the verb: the fields, as the verb calls them."""
        return {name: getattr(self, name) for name in type(self).model_fields if name != JSON}

    def call(self) -> Any:
        """Call the verb and give back its result."""
        return imported(self.verb)(**self.arguments())

    def show(self, result: Any) -> None:
        """Print the result, where it was written, and what may come next."""
        output = getattr(self, "output", None)
        if self.as_json:
            values = result.to_json() if hasattr(result, "to_json") else result
            written = {} if output is None else {"output": str(output)}
            print_json(written | (values or {}) if isinstance(values, dict | None) else values)
            return
        show(self.text(result))
        files = [str(getattr(self, name)) for name in self.writes if getattr(self, name, None) is not None]
        if files and not getattr(self, "markdown", False):
            print(f"written: {', '.join(files)}")
            if following := self.following():
                print(f"next: {following.format(output=output)}")

    def text(self, result: Any) -> Any:
        """What `show` prints of the result, where it is not JSON."""
        return result

    def following(self) -> str:
        """What may be done with {output}; "" for nothing."""
        return self.next_step


def imported(name: str) -> Any:
    """What "module:attribute" names, imported now."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def command(declared: type[Command]) -> Callable[..., None]:
    """A function for `typer.Typer.command` that takes what the command declares, runs it and prints its result."""

    def run(**values: Any) -> None:
        settings = _checked(declared, values)
        settings.show(settings.call())

    fields = declared.model_fields
    names = [name for name in fields if name != JSON] + [JSON] * declared.has_json
    run.__name__, run.__doc__ = declared.__name__, inspect.getdoc(declared)
    parameters = [_parameter(name, fields[name]) for name in names]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def command_name(declared: type[Command]) -> str:
    """The name of a command, which is that of its class.

    >>> class MakeTestset(Command): ...
    >>> command_name(MakeTestset)
    'make-testset'
    """
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in declared.__name__).strip("-")


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    """A field as a parameter of a function that typer reads."""
    info: ParameterInfo = copy(next((m for m in field.metadata if isinstance(m, ParameterInfo)), typer.Option()))
    info.help = field.description
    if isinstance(info, ArgumentInfo):
        info.metavar = info.metavar or name.upper()
    if isinstance(info, OptionInfo) and field.annotation is bool and not field.default and not _flags(info):
        info.param_decls = (option(name),)  # on or absent: no --no-NAME
    for limit in field.metadata:
        info.min = getattr(limit, "ge", info.min)
        info.max = getattr(limit, "le", info.max)
    default = inspect.Parameter.empty if field.default is PydanticUndefined else field.default
    annotation = Annotated[field.annotation, info]  # type: ignore[name-defined]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _flags(info: ParameterInfo) -> bool:
    return bool(info.param_decls) or info.default is not ...


def option(name: str) -> str:
    """The option of a field.

    >>> option("top_k"), option("as_json")
    ('--top-k', '--json')
    """
    return "--" + name.removeprefix("as_").replace("_", "-")


def _checked(declared: type[Command], values: dict[str, Any]) -> Command:
    """The settings of a command; `ArgumentError` names the option that is wrong."""
    try:
        return declared.model_validate({name: value for name, value in values.items() if value not in (None, [])})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        message = first["msg"].removeprefix("Value error, ")
        if not name:
            raise ArgumentError(message) from error
        positional = any(isinstance(m, ArgumentInfo) for m in declared.model_fields[name].metadata)
        where = name.upper() if positional else option(name)
        raise ArgumentError(f"{where}: {message}, not {first['input']!r}") from error


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


def numbers(words: list[str]) -> list[int]:
    """The numbers of an option that may be repeated, and has commas between.

    >>> numbers(["5,20", "10"])
    [5, 20, 10]
    """
    parts = [part.strip() for word in words for part in word.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ValueError("numbers with commas between, as 10,100")
    return [int(part) for part in parts]


# Fields that several commands have, with one meaning.
Numbers = Annotated[list[str], typer.Option(metavar="N,N..."), AfterValidator(numbers)]
Model = Annotated[str, typer.Argument(metavar="MODEL"), Field(description="vocable-mini, a folder, or a Hub id.")]
Texts = Annotated[
    list[str], typer.Argument(metavar="TEXTS"), Field(description="Sources of texts, such as a file or pydocs:.")
]
Output = Annotated[
    Path, typer.Option("-o", "--output"), Field(description="Folder for the result; there only when it is whole.")
]
Role = Annotated[Literal["query", "document"], Field(description="Encode as queries or as documents.")]
TopK = Annotated[int | None, Field(ge=1, description="Keep only so many terms per text, the heaviest.")]
MinWeight = Annotated[float, Field(ge=0, description="Drop terms lighter than this.")]
Mass = Annotated[float | None, Field(ge=0, le=1, description="Keep the fewest terms with this share of the weight.")]
DType = Annotated[
    Literal["auto", "float32", "bfloat16"], Field(description="auto: bfloat16 where the processor has it.")
]
MaxLength = Annotated[int | None, Field(ge=1, description="Tokens per text, in place of the model's own length.")]
Device = Annotated[str | None, Field(description="cpu, cuda, cuda:1 ...; by default the best one there is.")]
SkipBad = Annotated[int, typer.Option(metavar="N"), Field(ge=0, description="Tolerate up to N bad lines in the input.")]
Measures = Annotated[
    list[str] | None,
    typer.Option("-m", "--measures", metavar="NAME"),
    Field(description="As nDCG@10; may be repeated."),
]
Seed = Annotated[int, Field(description="Decides all that is drawn at random.")]


class Loading(Command):
    """A command whose `model` is loaded, and whose `texts` are read, before the verb is called."""

    model: Model
    new_head: Annotated[bool, Field(description="Give an encoder without a head a new one.")] = False
    pooling: Annotated[str | None, Field(description="In place of the model's own: max, sum, cls ...")] = None
    activation: Annotated[str | None, Field(description="In place of the model's own: relu, log1p ...")] = None
    device: Device = None

    def arguments(self) -> dict[str, Any]:
        """The loaded model, a stream of the texts, and the other fields."""
        given = super().arguments()
        if isinstance(given.get("texts"), list):  # first: a source that is not there is known at once
            given["texts"] = texts_of(given["texts"])
        options = {name: given.pop(name) for name in ("new_head", "pooling", "activation", "device")}
        named = {name: value for name, value in options.items() if value}
        model = imported("vocable.encoder.load:load")(given.pop("model"), **named)
        return {"model": model, **given}


def texts_of(sources: list[str]) -> Iterator[str] | None:
    """The texts of all sources, which must be there; None of no source."""
    streams = [imported("vocable.data:read_texts")(source) for source in sources]
    return chain.from_iterable(streams) if streams else None
