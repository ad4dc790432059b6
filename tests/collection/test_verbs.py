"""The verb check: whole and damaged indexes. Adding and deleting are tested in test_writer."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import vocable as vo
from tests.cli.command_line import done, refused
from tests.engines.recount import recount
from tests.engines.test_stores import NAMES
from vocable.errors import ArgumentError


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rows = [{"_id": name, "text": f"the {name} {row}"} for row, name in enumerate(NAMES)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "corpus.jsonl"


@pytest.mark.usefixtures("quiet_libraries")
def test_the_command_check_counts_segments_and_names_a_damaged_file(
    capsys: pytest.CaptureFixture[str], backbones: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    place = tmp_path / "index"
    done(capsys, "index", backbones["bert"], corpus, "-o", place)
    more = tmp_path / "more.jsonl"
    more.write_text(json.dumps({"_id": "new", "text": "a new text"}) + "\n")
    done(capsys, "add", place, more)
    done(capsys, "delete", place, NAMES[0])
    segments = len([*place.glob("*.segment")])
    whole = {"place": str(place), "documents": len(NAMES), "segments": segments}
    assert json.loads(done(capsys, "check", place, "--json")) == whole
    assert f"{len(NAMES)} documents in {segments} segment" in done(capsys, "check", place)
    for path in [*place.glob("*.segment"), *place.glob("*.gone-*")]:
        content, state, place_of_bit = path.read_bytes(), path.stat(), path.stat().st_size // 2
        path.write_bytes(content[:place_of_bit] + bytes([content[place_of_bit] ^ 1]) + content[place_of_bit + 1 :])
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
        assert path.name in refused(capsys, "check", place)
        path.write_bytes(content)
    assert json.loads(done(capsys, "check", place, "--json")) == whole
    assert recount(place).wrong == 0
    assert str(tmp_path / "nothing") in refused(capsys, "check", tmp_path / "nothing")


def test_an_index_without_files_is_not_checked_and_its_counts_are_those_of_its_vectors(
    backbones: dict[str, Path], corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = vo.index(str(backbones["bert"]), corpus, dtype="float32", device="cpu")
    with pytest.raises(ArgumentError):
        vo.check(collection)
    assert recount(collection).wrong == 0
    frequencies, documents = collection.store.count_terms(np.arange(collection.settings.meta.size))
    frequencies[np.flatnonzero(frequencies)[:2]] += 1
    monkeypatch.setattr(
        type(collection.store), "count_terms", lambda _, terms, *_space: (frequencies[terms], documents)
    )
    assert recount(collection).wrong == 2
