from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.analysis.test_removal_figure import outcome, removed
from vocable.analysis.removal import Outcome, Removal, remembered
from vocable.analysis.removal_report import removal_tables, write_removal_report
from vocable.errors import VectorsError


def test_a_table_says_what_each_removal_did() -> None:
    first, second = removal_tables(removed("toy"))
    assert first.title == "toy, 7 queries, query expansions"
    whole = ["0", "0", "0.0%", "0.0%", "0.8000", "–", "–", "–", "–"]
    inside = ["5", "5", "50.0%", "50.0%", "0.5500", "0.500", "0.6000", "0.4000–0.8000", "inside"]
    below = ["1,000", "5", "50.0%", "50.0%", "0.2000", "0.500", "0.6000", "0.4000–0.8000", "below"]
    assert first.rows == [whole, inside, below]
    assert (first.header[4], second.header[4]) == ("RR@10", "R@10")
    assert [row[-1] for row in second.rows] == ["–", "inside", "below"]


def test_what_comes_from_data_is_shown_and_not_read(tmp_path: Path) -> None:
    found = [removed("<script>a|b"), removed("b")]
    write_removal_report(tmp_path, found, {"model": "<b>"})
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<script>" not in page
    assert "&lt;script&gt;a|b" in page
    assert "<td>&lt;b&gt;</td>" in page
    results = json.loads((tmp_path / "results.json").read_bytes())
    assert [Removal.from_json(values) for values in results["datasets"]] == found
    assert results["settings"] == {"model": "<b>"}
    assert (tmp_path / "removal.md").read_text(encoding="utf-8").count("| removed |") == 4


def test_a_search_is_kept_on_disk(tmp_path: Path) -> None:
    remember = remembered(tmp_path / "searches")
    assert remember("10-wacky", lambda: outcome(0.1 + 0.2)) == outcome(0.1 + 0.2)

    def never() -> Outcome:
        raise AssertionError("was searched again")

    assert remembered(tmp_path / "searches")("10-wacky", never) == outcome(0.1 + 0.2)
    for damage in ("{", '{"terms": 1}'):
        (tmp_path / "searches" / "10-wacky.json").write_text(damage, encoding="utf-8")
        with pytest.raises(VectorsError, match=r"10-wacky\.json: damaged"):
            remember("10-wacky", never)
