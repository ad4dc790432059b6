"""Postings in files: every list is read as it was written, whatever its length and name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from tests.publishing.reading import Cursor, file_for, read_block, read_file, read_postings, read_stems, read_table
from vocable.errors import VectorsError
from vocable.publishing.files import FileTable, SiteFiles, path_of, ranges, shortest_keys
from vocable.publishing.postings import Terms, write_postings

NAMES = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), unique=True, max_size=40).map(sorted)


@given(NAMES, st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_lists_round_trip(tmp_path: Path, names: list[str], seed: int, documents: int) -> None:
    rng = np.random.default_rng(seed)
    dense = rng.integers(1, 256, (documents, len(names))) * (rng.random((documents, len(names))) < 0.4)
    dense[0] = 7  # no list is empty
    scales = rng.random(len(names)).astype(np.float32).tolist()
    factors = rng.random(len(names)).astype(np.float32).tolist()
    terms = Terms(names, csr_array(dense.astype(np.uint8)), scales, factors)
    with pytest.MonkeyPatch.context() as patched:  # several blocks, and files of a few lists
        patched.setattr("vocable.publishing.postings.FIRST_BLOCK", 8)
        patched.setattr("vocable.publishing.postings.POSTINGS_BYTES", 40)
        table = write_postings(SiteFiles(tmp_path), terms)
    assert read_table(Cursor(table.to_bytes())) == table
    for place, name in enumerate(names):
        file = file_for(table, name)
        assert file is not None
        found = read_postings(read_file(tmp_path, file), name)
        assert found is not None
        assert (found.factor, found.scale) == (factors[place], scales[place])
        blocks = [found.first]
        for later in found.later:
            blocks.append(read_block(read_file(tmp_path, later.name), later.postings))
            assert later.top == blocks[-1].weights.max() <= blocks[-2].weights.min()
        assert all((np.diff(block.rows) > 0).all() for block in blocks)
        column = np.zeros(documents, dtype=np.int64)
        for block in blocks:
            column[block.rows] = block.weights
        assert column.tolist() == dense[:, place].tolist()
        assert found.documents == np.count_nonzero(column)
    for other in ("", "\0", "zz", *(name + "x" for name in names)):
        file = file_for(table, other)
        known = other in names
        assert (file is not None and read_postings(read_file(tmp_path, file), other) is not None) == known


@given(NAMES.filter(bool), NAMES, st.integers(0, 2**32 - 1))
def test_a_word_has_its_stem_in_its_range_and_a_stem_its_words(
    tmp_path: Path, names: list[str], words: list[str], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    stems = {word: stem for word in words if (stem := names[rng.integers(len(names))]) != word}
    weights, ones = csr_array(np.ones((1, len(names)), dtype=np.uint8)), [1.0] * len(names)
    with pytest.MonkeyPatch.context() as patched:  # files of a few lists
        patched.setattr("vocable.publishing.postings.POSTINGS_BYTES", 40)
        table = write_postings(SiteFiles(tmp_path), Terms(names, weights, ones, ones, stems))

    def stems_near(word: str) -> dict[str, str]:
        file = file_for(table, word)
        return {} if file is None else read_stems(read_file(tmp_path, file))

    for word in {*names, *words}:
        assert stems_near(word).get(word, word) == stems.get(word, word)
    for stem in names:
        expected = {word for word, its in stems.items() if its == stem}
        assert {word for word, its in stems_near(stem).items() if its == stem} == expected


@given(st.lists(st.integers(0, 100)), st.integers(1, 100))
def test_ranges_hold_all_parts(sizes: list[int], least: int) -> None:
    found = list(ranges(sizes, least))
    assert [place for one in found for place in range(len(sizes))[one]] == list(range(len(sizes)))
    limit = max(least, int(sum(sizes) ** 0.5))
    assert all(sum(sizes[one]) <= limit or one.stop - one.start == 1 for one in found)


@given(NAMES, st.integers(1, 5))
def test_keys_lead_to_their_ranges(names: list[str], size: int) -> None:
    cut = [names[start : start + size] for start in range(0, len(names), size)]
    table = FileTable(shortest_keys(cut), [f"{number}" for number in range(len(cut))])
    assert [file_for(table, name) for name in names] == [str(number) for number, some in enumerate(cut) for _ in some]


def test_a_cut_swapped_or_changed_file_is_an_error(tmp_path: Path) -> None:
    files = SiteFiles(tmp_path)
    one, other = files.add(b"one" * 100), files.add(b"other" * 100)
    content = path_of(tmp_path, one).read_bytes()
    flipped = bytes([content[0] ^ 1, *content[1:]])
    for wrong in (content[:-1], content + b"\0", flipped, path_of(tmp_path, other).read_bytes(), b""):
        path_of(tmp_path, one).write_bytes(wrong)
        with pytest.raises(VectorsError, match=one):
            read_file(tmp_path, one)
    path_of(tmp_path, one).unlink()
    with pytest.raises(VectorsError):
        read_file(tmp_path, one)
    assert read_file(tmp_path, other) == b"other" * 100
