from __future__ import annotations

from pathlib import Path

from tests.analysis.test_removal_figure import removed
from vocable.storage import read_record
from vocable.wackiness.ablate import RemovalReport


def test_a_table_says_what_each_removal_did() -> None:
    first, second = removed("toy").tables()
    assert first.title == "toy, 7 queries, query expansions"
    whole = ["0", "0", "0.0%", "0.0%", "0.8000", "–", "–", "–", "–"]
    inside = ["5", "5", "50.0%", "50.0%", "0.5500", "0.500", "0.6000", "0.4000–0.8000", "inside"]
    below = ["1,000", "5", "50.0%", "50.0%", "0.2000", "0.500", "0.6000", "0.4000–0.8000", "below"]
    assert first.rows == [whole, inside, below]
    assert (first.header[4], second.header[4]) == ("RR@10", "R@10")
    assert [row[-1] for row in second.rows] == ["–", "inside", "below"]


def test_what_comes_from_data_is_shown_and_not_read(tmp_path: Path) -> None:
    found = [removed("<script>a|b"), removed("b")]
    report = RemovalReport({"model": "<b>"}, found)
    report.write(tmp_path)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<script>" not in page
    assert "&lt;script&gt;a|b" in page
    assert "<td>&lt;b&gt;</td>" in page
    assert read_record(tmp_path / "results.json", RemovalReport) == report
    assert (tmp_path / "removal.md").read_text(encoding="utf-8").count("| removed |") == 4
