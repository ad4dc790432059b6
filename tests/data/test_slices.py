"""Spans of a source: even, complete, and read alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.encoding.test_shards import PART, corpus, packed
from vocable.data import BadLines
from vocable.data.kinds import DOCUMENT
from vocable.data.slices import WHOLE_PARTS, cut, has_changed, read_span
from vocable.errors import DataError

__all__ = ["corpus"]  # the fixture


@pytest.mark.parametrize("count", [1, 3, 6, 9])
@pytest.mark.parametrize("form", [Path, packed])
def test_spans_together_are_the_source(corpus: Path, count: int, form: Callable[[Path], Path]) -> None:
    source = str(form(corpus))
    spans = cut(source, DOCUMENT, PART, count, BadLines())
    read = [list(read_span(source, DOCUMENT, span, BadLines())) for span in spans]
    assert [one.id for some in read for one in some] == [f"d{i}" for i in range(22)]
    assert [len(some) for some in read] == [span.size for span in spans]
    assert max(map(len, read)) - min(map(len, read)) <= 1


@given(st.integers(0, 400), st.integers(1, 12), st.integers(1, 9))
def test_spans_are_even_whatever_the_ids(
    tmp_path_factory: pytest.TempPathFactory, count: int, size: int, spans: int
) -> None:
    """Sizes differ by one text, or by two parts of many if the spans are of whole parts."""
    path = tmp_path_factory.mktemp("even") / "corpus.jsonl"
    path.write_text("".join(f'{{"_id": "same-prefix-{i}", "text": "fox"}}\n' for i in range(count)))
    found = cut(str(path), DOCUMENT, size, spans, BadLines())
    sizes = [span.size for span in found]
    assert (sum(sizes), len(sizes)) == (count, spans)
    if count >= WHOLE_PARTS * size * spans:
        assert all(span.before % size == 0 for span in found)
        assert max(sizes) - min(sizes) <= 2 * size
        assert max(sizes) <= 1.2 * count / spans
    else:
        assert max(sizes) - min(sizes) <= 1
    assert (found[0].start, found[-1].end) == (0, path.stat().st_size)


def test_a_span_is_read_without_what_precedes_it(corpus: Path) -> None:
    spans = cut(str(corpus), DOCUMENT, PART, 3, BadLines())
    assert [span.before for span in spans] == [0, 7, 14]
    content = bytearray(corpus.read_bytes())
    content[10 : spans[1].start - 1] = b"x" * (spans[1].start - 11)
    corpus.write_bytes(bytes(content))
    assert [one.id for one in read_span(str(corpus), DOCUMENT, spans[1], BadLines())] == [f"d{i}" for i in range(7, 14)]
    assert [has_changed(str(corpus), DOCUMENT, spans, number) for number in range(3)] == [True, False, False]


def test_a_bad_line_is_named_by_its_line_in_the_file(corpus: Path) -> None:
    corpus.write_text(corpus.read_text(encoding="utf-8").replace('"d17"', "17.5"), encoding="utf-8")
    with pytest.raises(DataError):  # before any span is read: those of the corrected file are others
        cut(str(corpus), DOCUMENT, PART, 3, BadLines())
    span = cut(str(corpus), DOCUMENT, PART, 3, BadLines(1))[2]
    with pytest.raises(DataError, match=r"corpus\.jsonl:19: .*\bid .*float"):
        list(read_span(str(corpus), DOCUMENT, span, BadLines()))
    bad = BadLines(1)
    assert len(list(read_span(str(corpus), DOCUMENT, span, bad))) == span.size - 1
    assert bad.count == 1
