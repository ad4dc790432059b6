"""Damaged and foreign files beside a graph: each is one line, before or in place of an encoding."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from vocable.encoding.graph import GraphModel
from vocable.encoding.graph_settings import BOTH_ROLES
from vocable.encoding.hub import locate
from vocable.encoding.load import load_encoder
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ModelError

BUILT_IN = Path(locate("vocable-mini"))
TOKENS = 30522


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The graph of the built-in model, in a folder whose settings and tokenizer can be changed."""
    (tmp_path / "onnx").symlink_to(BUILT_IN / "onnx")
    for name in ("graph.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((BUILT_IN / name).read_bytes())
    return tmp_path


def change(folder: Path, damage: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((folder / "graph.json").read_text(encoding="utf-8"))
    damage(content)
    (folder / "graph.json").write_text(json.dumps(content), encoding="utf-8")


def refusal(folder: Path, role: Any = "query", text: str = "a river in the mountains") -> str:
    with pytest.raises(ModelError) as caught:
        TextEncoder(load_encoder(folder, device="cpu"), role).encode([text])
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
    return str(caught.value)


def test_the_copied_graph_encodes(folder: Path) -> None:
    assert TextEncoder(GraphModel(folder), "query").encode(["a river"]).nnz > 0


@pytest.mark.parametrize("role", BOTH_ROLES)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_length", 0),
        ("max_length", -1),
        ("max_length", 513),  # positions: 512
        ("max_length", 10**30),
        ("positions", 0),
        ("max_terms", 0),
        ("query_idf", -1),
        ("query_idf", 11),
        ("padding", -1),
        ("padding", TOKENS),
        ("tokens", 0),
        ("folder", ".."),
        ("special", [0.5]),
    ],
)
def test_a_number_out_of_range_is_damage(folder: Path, role: str, key: str, value: Any) -> None:
    change(folder, lambda content: content["roles"][role].update({key: value}))
    message = refusal(folder)
    assert "graph.json is damaged" in message
    assert role in message
    assert key in message


@pytest.mark.parametrize("gone", [["query"], ["document"], ["query", "document"]])
def test_a_missing_role_is_damage(folder: Path, gone: list[str]) -> None:
    change(folder, lambda content: [content["roles"].pop(role) for role in gone])
    assert f"graph.json is damaged: export the model again (roles: {gone[0]} is missing)" in refusal(folder)


def of_words(count: int, *, number: int | None = None) -> str:
    """A tokenizer of `count` words; the last has the number `number`."""
    words = {"[UNK]": 0, **{f"w{i}": i for i in range(1, count)}}
    words[f"w{count - 1}"] = count - 1 if number is None else number
    return Tokenizer(WordLevel(words, unk_token="[UNK]")).to_str()


def test_a_tokenizer_of_more_tokens_than_the_graph_has_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").write_text(of_words(TOKENS + 1), encoding="utf-8")
    message = refusal(folder)
    assert str(folder / "tokenizer.json") in message
    assert "30,523 tokens, the graph 30,522" in message


def test_a_token_that_the_graph_does_not_have_is_one_line(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "tokenizer.json").write_text(of_words(9, number=TOKENS), encoding="utf-8")
    assert "tokenizer.json" in refusal(folder, text="w8")
    assert capfd.readouterr().err == ""


def test_more_positions_than_the_graph_has_are_one_line(folder: Path) -> None:
    change(folder, lambda content: content["roles"]["query"].update(max_length=None, positions=None))
    assert "a length of 602 tokens" in refusal(folder, text="x " * 600)
