"""Work folders: who may go on with one, and what is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from vocable.errors import ArgumentError, VectorsError
from vocable.storage import check_settings, claim, occupied, partial_of, read_json, refuse_occupied, write_json


def test_the_same_settings_go_on_and_others_are_refused(tmp_path: Path) -> None:
    work = tmp_path / "deep" / "out.partial"
    claim(work, {"model": "m", "top_k": None})
    claim(work, {"model": "m", "top_k": None})
    assert read_json(work / "settings.json") == {"model": "m", "top_k": None}
    with pytest.raises(
        ArgumentError, match=r"out\.partial was made with other settings \(role, top_k\): name another output"
    ):
        claim(work, {"model": "m", "top_k": 3, "role": "query"})


def test_a_claim_killed_at_its_beginning_is_repeated(tmp_path: Path) -> None:
    (tmp_path / ".settings.json.part").write_text("{", encoding="utf-8")
    claim(tmp_path, {"model": "m"})
    check_settings(tmp_path, {"model": "m"})


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ArgumentError, match="is already there and something else"):
        claim(tmp_path, {"model": "m"})
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("content", ["{", "[1]", ""])
def test_damaged_settings_are_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "settings.json").write_text(content, encoding="utf-8")
    with pytest.raises(VectorsError, match=r"settings\.json: damaged"):
        claim(tmp_path, {})


def test_an_empty_folder_is_free_and_a_file_is_not(tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert not occupied(tmp_path)
    assert not occupied(file)
    file.touch()
    assert occupied(file)
    with pytest.raises(ArgumentError, match="file is already there: name another output, or remove it"):
        refuse_occupied(file)


@pytest.mark.parametrize("output", [".", "/", ".."])
def test_an_output_without_a_name_is_refused(output: str) -> None:
    with pytest.raises(ArgumentError, match="name a folder that is not there yet"):
        partial_of(Path(output))


def test_json_is_written_whole(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"title": "Ålesund"})
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{\n  "title": "Ålesund"\n}'
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
