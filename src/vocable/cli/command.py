"""Commands: a verb of `vocable` each, with what a terminal adds to it.

A command has the options of its verb (`vocable.cli.verbs`) and a few of its own. Words of the command line become the
verb's arguments; an option that is not given is left out of the call. The result is printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import vocable as vo
from vocable.cli.output import print_json, show
from vocable.cli.verbs import REQUIRED, Parameter, fields, read_verb
from vocable.core.hints import Values
from vocable.core.tables import masked
from vocable.encoding.hub import check_model, locate
from vocable.errors import ArgumentError, UnwrittenError
from vocable.options import CountOrZero, check, default_of

TEXT_FILES = (".jsonl", ".json", ".tsv", ".txt")
OUTPUTS = ("run", "output", "figure", "per_query", "train_output")  # arguments that name a written file or folder
LOADING = ("pooling", "activation", "new_head", "special_terms", "device")  # arguments of `vocable.load`
SHARED = {
    "skip_bad": (CountOrZero, "Number of malformed lines to skip; one more is an error."),
    "markdown": (bool, "Print a Markdown table."),
    "json": (bool, "Print JSON on stdout, and nothing else there."),
}
SINGULAR = {"overrides": "override"}  # one at a time on the command line
# Help of an argument where the verb takes a loaded model, returns a model, and takes texts.
MODEL = "vocable-mini, a folder, or a Hub id."
OUTPUT = "Output folder (written atomically)."
SOURCES = "Sources of texts, such as a file, a folder or pydocs:."


class Outcome(NamedTuple):
    """The result of a command, and a command that may follow.

    `written` are the written files and folders, by default the outputs that were asked for. `repeated` says whether the
    output already existed; if it is None, the files are compared.
    """

    result: Any = None
    following: str = ""
    repeated: bool | None = None
    written: Sequence[object] | None = None


@dataclass(frozen=True)
class Command:
    """A verb as a command.

    Attributes:
        name: the command; its verb has underscores (`make_testset` for make-testset).
        arguments: the words that stand without an option, in their order. The last one may be several ("ids...").
        example: the words of an example.
        run: takes the arguments that are given, by name; by default the verb takes them. If the command loads the
            model, `loading` has the options of `vocable.load`.
        traits: some of these words. "named": the model must be the name of a model. "loads": the command also loads
            it, and has the options of `vocable.load`. "writes": the command needs an output. "reads": the command reads
            sources itself, and takes --skip-bad. "resumes": an interrupted command resumes when repeated. "markdown":
            the command takes --markdown. "formats": it takes --json as `as_json`, too. "no-json": the command does not
            take --json.
        options: type hints and help of options that the verb does not have, or has otherwise.
        without: arguments of the verb that are no options.
        sources: arguments that name sources; missing ones are an error before PyTorch is imported.
    """

    name: str
    arguments: str
    example: str
    run: Callable[..., Outcome] | None = None
    traits: str = ""
    options: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    without: str = ""
    sources: str = ""

    def has(self, trait: str) -> bool:
        """Return whether the command has a trait."""
        return trait in self.traits.split()

    @property
    def verb(self) -> str:
        """The name of the function."""
        return self.name.replace("-", "_")

    @property
    def words(self) -> list[str]:
        """The names of the arguments that stand without an option."""
        return self.arguments.replace("...", "").split()

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """All arguments and options, arguments first."""
        known = read_verb(self.verb).parameters
        known = {name: known[name] for name in self.words if name in known} | known
        if self.has("loads"):
            loading = read_verb("load").parameters
            known |= {name: loading[name]._replace(record="load") for name in LOADING}
            known["model"] = Parameter("model", str, REQUIRED, MODEL)
        if self.has("loads") or self.has("writes"):
            known["output"] = known.get("output", Parameter("output", Path, help=OUTPUT))._replace(default=REQUIRED)
        if "texts" in self.words and {Iterable, str} & known["texts"].kinds == {Iterable}:
            known["texts"] = known["texts"]._replace(help=SOURCES)
        for name, (hint, text) in self.options.items():
            other, default = known.get(name, Parameter(name, hint)), default_of(hint)
            default = other.default if default is REQUIRED else default
            known[name] = other._replace(hint=hint, help=text, default=default)
        takes = {"skip_bad": self.has("reads"), "markdown": self.has("markdown"), "json": not self.has("no-json")}
        known |= {name: Parameter(name, hint, None, text) for name, (hint, text) in SHARED.items() if takes[name]}
        return {name: parameter for name, parameter in known.items() if name not in self.without.split()}


def execute(command: Command, values: dict[str, Any]) -> None:
    """Check the arguments of a command, carry it out, and print its outcome."""
    as_json, markdown = values.pop("json", False), values.pop("markdown", False)
    output = values.get("output")
    previous_state = _state(output)
    try:
        given = _checked(command, values) | ({"as_json": as_json} if command.has("formats") else {})
        tolerated = given.pop("skip_bad", 0) if command.has("reads") else 0
        with _reading(tolerated) if tolerated else nullcontext():
            outcome = command.run(**given) if command.run else Outcome(getattr(vo, command.verb)(**given))
            if not command.has("no-json"):  # else the verb itself prints
                same = previous_state is not None and previous_state == _state(output)
                outcome = outcome._replace(repeated=same) if outcome.repeated is None else outcome
                files = [given[name] for name in OUTPUTS if given.get(name)]
                outcome = outcome._replace(written=files) if outcome.written is None else outcome
                _print(outcome, as_json, markdown, output)
    except UnwrittenError as error:
        _print(Outcome(error.result), as_json, markdown, output)
        raise
    except ArgumentError as error:
        raise ArgumentError(in_options(str(error), command)) from error


def _reading(skip_bad: int) -> AbstractContextManager[object]:
    from vocable.data import tolerating

    return tolerating(skip_bad)


def _print(outcome: Outcome, as_json: bool, markdown: bool, output: object) -> None:
    """Print a result, the written files and the command that may follow."""
    result = outcome.result
    if as_json and isinstance(result, Iterator):
        for item in result:
            if not isinstance(item, str):  # a line for readers
                print_json(item.to_json(), indent=None)
        return
    if as_json:
        values = result.to_json() if hasattr(result, "to_json") else result
        written = {} if output is None else {"output": masked(str(output))}
        print_json(written | (values or {}) if isinstance(values, dict | None) else values)
        return
    show(result.markdown() if markdown else result)
    files = [masked(str(file)) for file in outcome.written or ()]
    if files and not markdown:
        show(f"{'already there, made with the same settings' if outcome.repeated else 'written'}: {', '.join(files)}")
    if outcome.following and not markdown:
        following = masked(outcome.following)
        show(f"next{'' if following == outcome.following else ', with the password for ***'}: {following}")


def _state(output: object) -> tuple[int, int] | None:
    """Return a state that changes when an output is replaced or gets a shard; None if the output does not exist."""
    path = Path(re.sub(r"^[a-z]+:(?!//)", "", str(output or "")))  # the folder in seismic:FOLDER
    if output is None or not path.exists():
        return None
    return path.stat().st_ino, sum(1 for _ in path.glob("shard-*")) if path.is_dir() else 0


def _checked(command: Command, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a command, with the options of `vocable.load` in one of them.

    Raises `ArgumentError` for an empty text, for a number out of its limits or beyond 32 bits, and for a model that is
    a file; `DataError` for a missing source, and `ModelError` for a folder without a model and a name of none.
    """
    for name, value in given.items():
        beyond = 1 << (32 if name == "seed" else 31)
        for item in value if isinstance(value, list) else [value]:
            if item == "":
                raise ArgumentError(f"{name} must not be empty")
            if type(item) is int and item >= beyond:
                raise ArgumentError(f"{name} must be below {beyond}, not {item}")
        if allowed := Values.of(command.parameters[name].hint):
            allowed.check(name, value)
    if record := read_verb(command.verb).record:
        check(record, {name: value for name, value in given.items() if name in fields(record)})
    if isinstance(model := given.get("model"), str) and Path(model).suffix in TEXT_FILES and Path(model).is_file():
        raise ArgumentError(f"model must be a folder, a Hub id or vocable-mini, not the file {model!r}")
    check_sources(command, given)
    if command.has("named") or command.has("loads"):
        for name in given.get("models") or [given["model"]]:
            if isinstance(name, str):
                check_named_model(name)
                locate(name)
    if not command.has("loads"):
        return dict(given)
    loading = {name: given[name] for name in LOADING if name in given}
    return {name: value for name, value in given.items() if name not in loading} | {"loading": loading}


def check_named_model(name: str) -> None:
    """Raise `ModelError` for a folder without a model, before libraries are imported."""
    from vocable.encoding.graph import is_exported

    if Path(name).is_dir() and not is_exported(name):
        check_model(name)


def check_sources(command: Command, given: Mapping[str, Any]) -> None:
    """Raise `DataError` for a missing source, before libraries are imported."""
    named = [given[name] for name in command.sources.split() if given.get(name)]
    if named:
        from vocable.data.read import check_there

        for value in named:
            for source in [value] if isinstance(value, str | Path) else value:
                check_there(str(source))


def in_options(text: str, command: Command) -> str:
    """Translate a verb's message or help text for the command line: max_terms becomes --max-terms.

    An argument is recognized at the start of the text, by an underscore in its name, or by backquotes.
    """

    def translated(match: re.Match[str]) -> str:
        name, _, value = match[0].strip("`").partition("=")
        if name not in command.parameters:
            return match[0].strip("`")
        return name.upper() if name in command.words else f"{option(name)} {value.strip(chr(34))}".strip()

    return re.sub(r"^[a-z]\w*(?=[: ])|(?<=[a-z] )[a-z]+(_[a-z]+)+(?![^\s),:;])|`[^`]+`", translated, text)


def option(name: str) -> str:
    """Return the option for an argument.

    >>> option("max_terms")
    '--max-terms'
    """
    return "--" + SINGULAR.get(name, name).replace("_", "-")
