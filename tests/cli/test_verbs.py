"""Verbs as the command line reads them from their source, compared with the imported functions."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import pytest
from annotated_types import Ge
from typing_extensions import Doc

import vocable
from vocable.cli import COMMANDS
from vocable.cli.verbs import REQUIRED, Parameter, alternatives, fields, first_line, read_verb
from vocable.core.hints import Values
from vocable.options import Encoding, record_of

VERBS = [*(command.verb for command in COMMANDS.values()), "load"]


def hints_of(function: Any) -> dict[str, Any]:
    """The type hints of an imported verb; names that only type checkers import are `Any`."""
    unknown: dict[str, Any] = {}
    while True:
        try:
            return get_type_hints(inspect.unwrap(function), localns=unknown, include_extras=True)
        except NameError as error:
            unknown[str(error.name)] = Any


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_has_the_arguments_defaults_and_limits_of_its_function(name: str) -> None:
    function = getattr(vocable, name)
    parameters, verb, hints = inspect.signature(function).parameters, read_verb(name), hints_of(function)
    named = {key: one for key, one in parameters.items() if one.kind is not one.VAR_KEYWORD}
    assert {key: verb.parameters[key].default for key in named} == {key: one.default for key, one in named.items()}
    for key in named:
        assert str(Values.of(verb.parameters[key].hint)) == str(Values.of(hints[key])), key
    options = [one for one in parameters.values() if one.kind is one.VAR_KEYWORD]
    record = record_of(hints[options[0].name]) if options else None
    assert verb.record is record
    assert verb.parameters.keys() == named.keys() | fields(record).keys()


@pytest.mark.parametrize("name", VERBS)
def test_every_argument_has_a_help_text(name: str) -> None:
    verb = read_verb(name)
    assert [key for key, one in verb.parameters.items() if not one.help] == []
    assert verb.summary == first_line(name) == (inspect.getdoc(getattr(vocable, name)) or "").splitlines()[0]
    texts = [verb.details, *(one.help for one in verb.parameters.values())]
    assert not [text for text in texts if "in Python" in text or "command line" in text]


def test_an_option_of_a_record_knows_the_record_that_defines_it() -> None:
    owners = {name: one.record for name, one in fields(Encoding).items()}
    assert (owners["max_terms"], owners["device"], owners["long_documents"]) == (
        "Pruning",
        "Backend",
        "DocumentEncoding",
    )


@pytest.mark.parametrize(
    ("hint", "kinds", "items"),
    [
        (Annotated[int, Ge(1)] | None, {int, type(None)}, set()),
        (Sequence[Annotated[int, Ge(1)] | None], {Sequence}, {int, type(None)}),
        (str | Sequence[str], {str, Sequence}, {str}),
        (Sequence[str] | Path | None, {Sequence, Path, type(None)}, set()),  # a file in place of a list
        (Annotated[Literal["a", "b"], Doc("x")], {Literal}, set()),
    ],
)
def test_the_kinds_of_a_type_hint(hint: Any, kinds: set[Any], items: set[Any]) -> None:
    assert (Parameter("x", hint).kinds, Parameter("x", hint).items) == (kinds, items)
    assert get_args(hint) or alternatives(hint)


def test_required_arguments_have_no_default() -> None:
    assert [name for name, one in read_verb("tune").parameters.items() if one.default is REQUIRED] == [
        *("model", "corpus", "output")
    ]
