"""Words of the command line, and the arguments that they give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.cli import COMMANDS
from vocable.cli.words import arguments_of, options_of
from vocable.errors import ArgumentError


@pytest.mark.parametrize(
    ("command", "words", "arguments"),
    [
        ("search", ["i", "q", "-k", "3"], {"index": ["i"], "query": ["q"], "k": 3}),
        ("search", ["-k3", "i", "--", "-q"], {"index": ["i"], "query": ["-q"], "k": 3}),
        ("search", ["i", "-", "--k=3", "-k", "4"], {"index": ["i"], "query": ["-"], "k": 4}),
        ("search", ["i", "a", "--explain", "b c"], {"index": ["i"], "query": ["a", "b c"], "explain": True}),
        ("search", ["i", "--sort", "-year", "q"], {"index": ["i"], "query": ["q"], "sort": "-year"}),
        ("search", ["i", "--min-score=-1.5"], {"index": ["i"], "min_score": -1.5}),
        ("publish", ["i", "-o", "s", "--no-bm25"], {"index": "i", "output": "s", "bm25": False}),
        ("analyze-postings", ["v", "--max-terms", "all,5", "--max-terms", "9"],
         {"vectors": ["v"], "max_terms": [None, 5, 9]}),
        ("rescale", ["m", "-o", "o", "--factor", "auto"], {"model": "m", "output": Path("o"), "factor": "auto"}),
        ("rescale", ["m", "-o", "o", "--factor", "2"], {"model": "m", "output": Path("o"), "factor": 2.0}),
        ("expand-vocabulary", ["m", "-o", "o", "--words", "w"],
         {"model": "m", "output": Path("o"), "words": Path("w")}),
        ("train", ["r", "-o", "o", "--override", "a=1,2"], {"recipe": "r", "output": "o", "overrides": ["a=1,2"]}),
        ("measure-wackiness", ["m", "n", "--corpus", "c", "-o", "w", "--no-special"],
         {"models": ["m", "n"], "corpus": "c", "output": "w", "special": False}),
        ("recipes", [], {}),
    ],
)  # fmt: skip
def test_words_give_arguments(command: str, words: list[str], arguments: dict[str, Any]) -> None:
    assert arguments_of(COMMANDS[command], words) == arguments


@given(st.lists(st.text(min_size=1).filter(lambda text: not text.startswith("-")), min_size=1), st.integers(0, 5))
def test_options_may_stand_between_words(texts: list[str], place: int) -> None:
    words = [*texts[:place], "--filter", "--x" if not texts else texts[0], *texts[place:]]
    arguments = arguments_of(COMMANDS["search"], words)
    assert [*arguments["index"], *arguments.get("query", [])] == texts
    assert arguments["filter"] == texts[0]


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (["i", "--filter", "--explain"], "--filter"),
        (["i", "--filter"], "--filter"),
        (["i", "-x"], "-x"),
        (["i", "--explain=1"], "--explain"),
        ([], "INDEX"),
    ],
)
def test_words_that_give_no_arguments_are_refused(words: list[str], fact: str) -> None:
    with pytest.raises(ArgumentError, match=fact):
        arguments_of(COMMANDS["search"], words)


def test_a_flag_that_is_on_can_be_turned_off() -> None:
    parameters = COMMANDS["measure-wackiness"].parameters
    assert options_of(parameters["special"]) == ["--special", "--no-special"]
    assert options_of(parameters["whole_vocabulary"]) == ["--whole-vocabulary"]
    assert options_of(COMMANDS["search"].parameters["k"]) == ["-k", "--k"]
