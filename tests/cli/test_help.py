"""Pages of the help."""

from __future__ import annotations

import re

import pytest

from vocable.cli import COMMANDS, GROUPS
from vocable.cli.help import overview, page, usage
from vocable.cli.words import options_of


@pytest.fixture(params=[60, 80, 200])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("COLUMNS", str(request.param))
    return min(int(request.param), 100)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_shows_every_option_once_within_the_terminal(name: str, width: int) -> None:
    text = page(COMMANDS[name])
    examples = re.findall("^  Example: .*$", text, re.MULTILINE)
    assert len(examples) == 1
    assert max(len(line) for line in text.splitlines() if line not in examples) <= width
    rows = re.findall(r"^  (-.*?)(?:  |$)", text.partition("\nOptions:\n")[2], re.MULTILINE)
    options = [options_of(one) for key, one in COMMANDS[name].parameters.items() if key not in COMMANDS[name].words]
    assert sorted(re.split("[ ,/]", row)[0] for row in rows) == sorted([*(names[0] for names in options), "-h"])
    assert "`" not in text


def test_options_stand_in_groups() -> None:
    text = page(COMMANDS["search"])
    sections = dict(re.findall(r"^(\w[\w ]+):\n(.*?)(?=^\w|\Z)", text, re.M | re.S))
    assert [*sections] == ["Arguments", "Options", "Ranking", "Model", "Rarely used"]
    places = {"--queries": "Options", "--rerank-depth": "Ranking", "--max-terms": "Model", "--skip-bad": "Rarely used"}
    assert {option: [name for name, body in sections.items() if option in body] for option in places} == {
        option: [name] for option, name in places.items()
    }


def test_the_form_of_a_command_names_what_it_needs() -> None:
    assert usage(COMMANDS["search"]) == "vocable search INDEX... [QUERY...] [OPTIONS]"
    assert usage(COMMANDS["explain"]) == "vocable explain MODEL QUERY [DOCUMENT] [OPTIONS]"
    assert usage(COMMANDS["pretrain"]) == "vocable pretrain MODEL TEXTS... --steps N -o PATH [OPTIONS]"
    assert usage(COMMANDS["rescale"]) == "vocable rescale MODEL --factor X|auto -o PATH [OPTIONS]"


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("prune", ["--mass X", "of the total weight. [> 0, ≤ 1]"]),
        ("pretrain", ["--dropout X", "[≥ 0, < 1]", "--masking uniform|overlap-aware|whole-word|longest-span"]),
        ("analyze-weights", ["--max-terms N,N...", "[default: all]", "[default: 1]"]),
        ("publish", ["--bm25/--no-bm25", "[default: on]"]),
        ("tune", ["--minutes X", "[default: 60]", "--generator MODEL"]),
        ("select", ["--grid SETTINGS", "may be repeated."]),
    ],
)
def test_a_page_says_what_an_option_takes(name: str, texts: list[str]) -> None:
    shown = " ".join(page(COMMANDS[name]).split())
    assert [text for text in texts if text not in shown] == []


def test_the_overview_has_a_line_for_each_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = overview(GROUPS).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if re.match(r"  [a-z]", line)] == [*COMMANDS]
