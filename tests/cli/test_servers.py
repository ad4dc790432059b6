"""Collections on servers, by the commands: made, searched, changed, and what is said of them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.command_line import done, refused
from tests.engines.lucene_server import serving

pytest.importorskip("opensearchpy")


@pytest.mark.slow
def test_a_collection_on_a_server(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    corpus, more = tmp_path / "corpus.jsonl", tmp_path / "more.jsonl"
    rows = [{"_id": f"d{row}", "text": f"the old fox reads books {row}", "year": 2020 + row} for row in range(4)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows[:3]))
    more.write_text(json.dumps(rows[3]) + "\n")
    with serving("opensearch") as url:
        place = f"opensearch+{url}/docs".replace("//", "//me:hunter2@")
        made = done(capsys, "index", model, corpus, "-o", place, "--bm25")
        said = refused(capsys, "search", place, "the old fox", "--filter", "year>")
        found = json.loads(done(capsys, "search", place, "the old fox", "--filter", "year>=2021", "--json"))
        assert sorted(hit["document"]["id"] if "document" in hit else hit["id"] for hit in found["hits"]) == [
            "d1",
            "d2",
        ]
        added = done(capsys, "add", place, more)
        deleted = done(capsys, "delete", place, "d1", "d7")
        found = json.loads(done(capsys, "search", place, "the old fox", "--json"))
        assert {hit["id"] for hit in found["hits"]} == {"d0", "d2", "d3"}
        repeated = done(capsys, "index", model, corpus, "-o", place, "--bm25")
        assert "already there" in repeated
        assert "texts/s" not in repeated
        assert "written" not in repeated
        [following] = [line for line in made.splitlines() if line.startswith("next")]
        assert "password for ***" in following
        again = json.loads(done(capsys, "index", model, corpus, "-o", f"opensearch+{url}/other", "--json"))
        assert again["output"].endswith("/other")
    assert "hunter2" not in made + added + deleted + said + repeated


def test_the_following_command_can_be_pasted(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    corpus, place = tmp_path / "corpus.jsonl", tmp_path / "my $index; it's"
    corpus.write_text('{"_id": "d1", "text": "the old fox"}\n')
    made = done(capsys, "index", model, corpus, "-o", place)
    [following] = [line for line in made.splitlines() if line.startswith("next: ")]
    assert shlex.split(following.removeprefix("next: ")) == [
        "vocable",
        "search",
        str(place),
        "your question",
    ]
