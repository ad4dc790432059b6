"""Commands and their functions: the same arguments with the same defaults, each with a help text."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from typer.main import get_command
from typing_extensions import Doc

import vocable
from vocable.cli import program
from vocable.cli.command import COMMANDS, record_fields
from vocable.training.recipe import PretrainSettings

PRINTED = {"as_json", "markdown"}
LOADING = {"pooling", "activation", "new_head", "special_terms", "device"}  # arguments of vocable.load
LOADED = {
    "calibrate",
    "expand-vocabulary",
    "export-model",
    "make-inference-free",
    "mine",
    "pretrain",
    "rescale",
    "transfer",
}
# Arguments of a command that its function lacks, and why.
ONLY_COMMAND = {
    "index": {"vectors"},  # further shards; in Python `model` is a list
    "search": {"query", "wacky_share"},  # texts beside the source `queries`; a share of the scores in `wacky`
    "explain": {"wacky_share", "allow_changed_model", "device"},  # in Python, of `load` and `open_index`
    "prune": {"wacky", "wackiest", "texts", "model"},  # one function in Python: `then`
    "transfer": {"neighbours"},  # a function of its own
    "train": {"override"},  # repeated on the command line, `overrides` in Python
}
# Arguments of a function that its command lacks, and why.
ONLY_FUNCTION = {
    "encode": {"name"},  # written as it was given
    "prune": {"then"},
    "train": {"overrides"},
    "inspect": {"tokenizer"},  # of a model that is not a folder
    "pretrain": {"work"},  # a folder next to the output
}
# Defaults that differ, and why.
DEFAULTS = {
    ("expand-vocabulary", "size"),  # None: not given, which --words requires
    ("expand-vocabulary", "min_count"),
    ("rescale", "texts"),  # pydocs: for --factor auto
    ("encode", "output"),  # required
    ("prune", "output"),
    ("search", "queries"),  # or texts
}


def arguments(function: Any) -> dict[str, Any]:
    """The arguments of a function with their defaults, "option" for the fields of its record."""
    found, names = dict[str, Any](), inspect.unwrap(function).__globals__
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            found[name] = parameter.default
        elif "Unpack" in parameter.annotation:
            found |= dict.fromkeys(get_type_hints(get_args(eval(parameter.annotation, names))[0]), "option")
            if name == "settings":  # also the keys of a recipe
                fields = PretrainSettings.model_fields.items()
                found |= {key: one.default for key, one in fields if not one.is_required()}
    return found


def normal(default: Any) -> Any:
    """A default without the differences of types: of no texts None, of a path its text."""
    return str(default) if isinstance(default, Path) else default or None


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_the_arguments_of_its_function(name: str) -> None:
    verb = arguments(getattr(vocable, name.replace("-", "_")))
    own = ONLY_COMMAND.get(name, set()) | (LOADING | {"output"} if name in LOADED else set())
    own |= PRINTED | ({"skip_bad"} if COMMANDS[name].reads else set())
    own -= verb.keys()
    command = {one.name: one for one in get_command(program(name)).commands[name].params}
    assert command.keys() - own == verb.keys() - ONLY_FUNCTION.get(name, set())
    assert ONLY_COMMAND.get(name, set()) <= command.keys()
    assert ONLY_FUNCTION.get(name, set()) <= verb.keys()
    assert all(one.help for one in command.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_the_defaults_of_its_function(name: str) -> None:
    verb, command = arguments(getattr(vocable, name.replace("-", "_"))), arguments(COMMANDS[name].function)
    shared = [one for one in command if one in verb and "option" not in (command[one], verb[one])]
    found = {one: normal(command[one]) for one in shared if (name, one) not in DEFAULTS}
    assert found == {one: normal(verb[one]) for one in found}
    for one, hint in record_fields(COMMANDS[name].function).items():
        help_text = " ".join(part.documentation for part in hint.__metadata__ if isinstance(part, Doc))
        if (said := re.search(r"(\d[\d,.e-]*) by default", help_text)) and isinstance(verb.get(one), int | float):
            assert float(said[1].replace(",", "")) == verb[one], one


def test_a_command_function_has_few_parameters() -> None:
    own = {
        name: len([one for one in arguments(command.function).values() if one != "option"])
        for name, command in COMMANDS.items()
    }
    assert {name: count for name, count in own.items() if count > 10} == {}


def test_a_flag_of_a_record_that_is_on_can_be_turned_off() -> None:
    parameters = {one.name: one for one in get_command(program()).commands["measure-wackiness"].params}
    assert parameters["special"].secondary_opts == ["--no-special"]
    assert parameters["whole_vocabulary"].secondary_opts == []
