"""Explanations in notebooks."""

from __future__ import annotations

from tests.explanation.test_explain import row
from vocable.explanation.explain import (
    expand_vector,
    explain_vectors,
)


def test_a_notebook_shows_terms_with_bars_and_runs_nothing() -> None:
    names = ["list", "<script>", "##ing", "[unused1]", "set"]
    explained = explain_vectors(row(1, 2, 0, 0, 1), row(3, 1.5, 0, 0, 2), names, ["list"], ["list"], ["set"])
    html = explained._repr_html_()
    assert "<script" not in html
    assert "+&lt;script&gt;" in html
    assert "~set" in html
    assert [f"{share}%</span>" in html for share in (38, 25)] == [True, True]
    assert [f"width:{length}%" in html for length in (100, 67)] == [True, True]  # of the longest
    alone = expand_vector(row(1, 2, 0, 0, 1), names, ["list"], k=2)._repr_html_()
    assert "3 active terms" in alone
    assert "width:50%" in alone
    assert expand_vector(row(0, 0, 0, 0, 0), names, [])._repr_html_().count("<span") == 0
