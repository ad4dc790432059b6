"""Commands: the options that they have beside those of their verbs."""

from __future__ import annotations

import pytest

from vocable.cli import COMMANDS
from vocable.cli.command import LOADING, in_options
from vocable.cli.verbs import read_verb

# Options that a verb lacks, and why.
ONLY_COMMAND = {
    "add": {"watch"},  # in Python, `vocable.collection.watching.follow`
    "index": {"vectors"},  # further shards; in Python `model` is a list
    "search": {"query", "wacky_share", "full"},  # texts beside the source `queries`; a share of `wacky`; in print
    "explain": {"wacky_share", "allow_changed_model", "device"},  # in Python, of `load` and `open_index`
    "merge": {"output"},  # in Python, of `save_pretrained`
    "prune": {"wacky", "wackiest", "texts", "model"},  # one function in Python: `then`
    "transfer": {"neighbours"},  # a function of its own
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_the_options_of_its_verb(name: str) -> None:
    command, verb = COMMANDS[name], read_verb(COMMANDS[name].verb).parameters
    own = ONLY_COMMAND.get(name, set()) | {"json", "markdown", "skip_bad"}
    own |= {*LOADING, "output"} if command.has("loads") else set()
    assert command.parameters.keys() - own == verb.keys() - own - {*command.without.split()}
    assert ONLY_COMMAND.get(name, set()) <= command.parameters.keys() - verb.keys()
    assert {*command.words} <= command.parameters.keys()


@pytest.mark.parametrize(
    ("text", "translated"),
    [
        ("max_terms must be at least 1", "--max-terms must be at least 1"),
        ("give queries and `explain` together", "give queries and --explain together"),
        ('with `fusion="weighted"` only', "with --fusion weighted only"),
        ("`index` is missing", "INDEX is missing"),
        ("the field max_terms of `vocable.load`", "the field --max-terms of vocable.load"),
        ("no_such_option is unknown", "no_such_option is unknown"),
    ],
)
def test_a_message_names_options(text: str, translated: str) -> None:
    assert in_options(text, COMMANDS["search"]) == translated
