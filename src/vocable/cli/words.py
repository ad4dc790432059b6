"""Turn the words after a command into the arguments of its verb."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any

from vocable.cli.command import Command, option
from vocable.cli.verbs import REQUIRED, Parameter
from vocable.errors import ArgumentError

SHORT = {"k": "-k", "output": "-o", "measures": "-m"}


def options_of(parameter: Parameter) -> list[str]:
    """Return the spellings of an option; of a flag that may be on by default, also the word that turns it off."""
    name = option(parameter.name)
    may_be_on = parameter.default is True or NoneType in parameter.kinds
    off = [f"--no-{name[2:]}"] if bool in parameter.kinds and may_be_on else []
    return [*filter(None, [SHORT.get(parameter.name)]), name, *off]


def arguments_of(command: Command, words: Sequence[str]) -> dict[str, Any]:
    """Return the arguments that the words give, by name.

    Raises `ArgumentError` for an unknown option, an option without its value, and missing or surplus words.
    """
    # Options by each spelling. Plain words get their places after all words are read.
    named = {
        word: parameter
        for name, parameter in command.parameters.items()
        if name not in command.words
        for word in options_of(parameter)
    }
    plain: list[str] = []
    last: list[str] | None = None  # the words after --
    values: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        if word == "--":
            last = [*rest]
        elif word == "-" or not word.startswith("-"):
            plain.append(word)
        else:
            # A switch has no value. Any other option has its value after `=` or in the next word.
            spelled, parameter, text = _option(command, word, named)
            if bool in parameter.kinds:
                if text is not None:
                    raise ArgumentError(f"{spelled} takes no value")
                values[parameter.name] = not spelled.startswith("--no-") or spelled == option(parameter.name)
                continue
            text = next(rest, None) if text is None else text
            if text is None or text in named:
                raise ArgumentError(f"{spelled} needs a value (see vocable {command.name} --help)")
            given = [*_values(parameter, text)]
            values[parameter.name] = values.get(parameter.name, []) + given if parameter.items else given[0]
    # Plain words, and words after --, go to the parameters that are not options.
    values = _placed(command, plain, last) | values
    required = [one for one in command.parameters.values() if one.default is REQUIRED and one.name not in values]
    if missing := [one.name.upper() if one.name in command.words else options_of(one)[0] for one in required]:
        raise ArgumentError(f"{command.name} needs {', '.join(missing)} (see vocable {command.name} --help)")
    return values


def _option(command: Command, word: str, named: dict[str, Parameter]) -> tuple[str, Parameter, str | None]:
    """Return an option as it is spelled, its argument, and its value if the same word has one."""
    spelled, equals, text = word.partition("=")
    if not word.startswith("--"):
        spelled, text = word[:2], word[2:].removeprefix("=")
        equals = text
    if spelled not in named:
        near = get_close_matches(spelled, named, 1, 0.7)
        hint = f"did you mean {near[0]}?" if near else f"see vocable {command.name} --help"
        raise ArgumentError(f"{command.name} has no option {spelled} ({hint})")
    return spelled, named[spelled], text if equals else None


def _placed(command: Command, plain: list[str], last: list[str] | None) -> dict[str, Any]:
    """Give the words without an option to the arguments, in their order.

    If the first argument may be several words, all words before -- are the first argument; else it is one word.
    """
    names, values = command.words, dict[str, Any]()
    several = [name for name in names if f"{name}..." in command.arguments.split()]
    if len(several) > 1 and last is not None and plain:
        return {names[0]: plain, **({names[1]: last} if last else {})}
    plain = [*plain, *(last or ())]
    for name in names:
        is_last = name == names[-1] and name in several
        if plain:
            taken = plain if is_last else plain[:1]
            values[name] = taken if name in several else next(iter(_values(command.parameters[name], plain[0])))
            plain = plain[len(taken) :]
    if plain:
        raise ArgumentError(f"{plain[0]!r} is one word too many (see vocable {command.name} --help)")
    return values


def _values(parameter: Parameter, text: str) -> Iterator[Any]:
    """Return the values of a text: several numbers have commas between. A check refuses a text that is no number."""
    kinds = parameter.items or parameter.kinds
    numbers = [kind for kind in (int, float) if kind in kinds]
    if str in kinds or not numbers:
        yield Path(text) if Path in kinds and str not in kinds else text
        return
    for part in text.split(",") if parameter.items else [text]:
        value: Any = None if part == "all" and NoneType in kinds else part
        for number in numbers:
            with suppress(TypeError, ValueError):
                value = number(value)
                break
        yield value
