"""Settings of an output: every argument of its verb, and the content of the files that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from vocable.core.fingerprint import differences, fingerprint, fingerprints, settings_of


def verb(
    model: object,
    source: str | Path,
    output: Path,
    *,
    kind: Literal["a", "b"] = "a",
    show: bool = False,
    **options: Any,
) -> dict[str, Any]:
    return settings_of(verb, locals(), {"model": "m"}, without=("show",))


def test_all_arguments_and_the_content_of_files_are_settings(tmp_path: Path) -> None:
    (tmp_path / "corpus.tsv").write_text("d1\tone")
    first = verb(object(), tmp_path / "corpus.tsv", tmp_path / "out", mass=0.5)
    assert first.keys() == {"source", "kind", "mass", "model", "inputs"}
    assert first["source"] == str(tmp_path / "corpus.tsv")
    others: dict[str, Any] = {"device": "cpu", "margin": None}  # change nothing, or are not set
    assert verb(object(), tmp_path / "corpus.tsv", tmp_path / "other", show=True, mass=0.5, **others) == first
    (tmp_path / "corpus.tsv").write_text("d1\ttwo")
    changed = verb(object(), tmp_path / "corpus.tsv", tmp_path / "out", mass=0.5)
    assert {name for name in first if first[name] != changed[name]} == {"inputs"}


def test_a_word_is_not_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").write_text("a file with the name of a word")
    assert verb(object(), "hf:x", tmp_path)["inputs"] == ""


def test_an_object_needs_a_setting_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="source"):
        verb(object(), object(), tmp_path)  # type: ignore[arg-type]


def test_differences_name_settings_and_inputs(tmp_path: Path) -> None:
    then = {"size": 1, "inputs": {"a": "1f", "b": "2e"}}
    assert differences(then, {"size": 1, "inputs": {"a": "1f"}}) == ([], None)  # b is gone
    assert differences(then, {"size": 1, "inputs": {"a": "3d", "b": "2e"}}) == ([], ["a"])
    assert differences(then, {"size": 2, "inputs": {"a": "3d"}}) == (["size"], ["a"])
    assert differences({"size": 1}, {"size": 1, "inputs": {"a": "3d"}}) == ([], None)  # made without fingerprints
    assert differences({"inputs": "1f"}, {"inputs": "2e"}) == ([], [])
    (tmp_path / "a.txt").write_text("snow")
    places = [str(tmp_path / "a.txt"), "hf:none", str(tmp_path / "none.txt")]
    assert fingerprints(places) == {places[0]: fingerprint(places[0])}
