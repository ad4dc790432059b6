"""Edit distances against the textbook recursion."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from vocable.language.suggestions import distances, edits_of, likely_stems, nearest

LETTERS = st.text("abcé猫", max_size=7)


def alignment(one: str, other: str) -> int:
    """The optimal string alignment distance."""

    @cache
    def edits(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        found = [edits(i - 1, j) + 1, edits(i, j - 1) + 1, edits(i - 1, j - 1) + (one[i - 1] != other[j - 1])]
        if i > 1 and j > 1 and one[i - 1] == other[j - 2] and one[i - 2] == other[j - 1]:
            found.append(edits(i - 2, j - 2) + 1)
        return min(found)

    return edits(len(one), len(other))


@given(LETTERS, st.lists(LETTERS, min_size=1, max_size=6))
def test_distances_are_those_of_the_recursion(word: str, words: list[str]) -> None:
    assert distances(word, words).tolist() == [alignment(word, one) for one in words]
    beginnings = [word[:end] for end in range(len(word) + 1)]
    nearest = [min(alignment(beginning, one) for beginning in beginnings) for one in words]
    assert distances(word, words, beginnings=True).tolist() == nearest


@given(
    st.text("abc", min_size=1, max_size=9), st.dictionaries(st.text("abc", min_size=1, max_size=9), st.integers(1, 9))
)
def test_the_nearest_word_has_fewest_edits_and_most_documents(word: str, counts: dict[str, int]) -> None:
    found = nearest(word, [*counts.items()])
    within = {one: (alignment(word, one), -count) for one, count in counts.items()}
    within = {one: rank for one, rank in within.items() if rank[0] <= edits_of(word)}
    assert (found is None) == (not within)
    if found is not None:
        assert within[found] == min(within.values())


def test_no_stem_is_likely_among_other_words() -> None:
    assert likely_stems("zebra", "zebra", {"fox": 1, "giraff": 3}) == []
    assert distances("zebra", []).tolist() == []
