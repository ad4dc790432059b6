from __future__ import annotations

import pytest

from vocable.data.pages.blocks import PageError
from vocable.data.pages.budget import MOST_MEMORY, MOST_SECONDS, MOST_UNPACKED, Insertions, budget_of


def test_a_budget_grows_with_the_file_to_a_limit() -> None:
    smallest, larger, largest = map(budget_of, (0, 1 << 20, 1 << 40))
    assert smallest == (8 << 20, 200_000, 3, 300 << 20)
    assert larger == (58 << 20, 200_000 + (50 << 20), 23, 400 << 20)
    assert (largest.unpacked, largest.seconds, largest.memory) == (MOST_UNPACKED, MOST_SECONDS, MOST_MEMORY)


def test_insertions_end_with_the_budget() -> None:
    insertions = Insertions(["a" * 20, "b" * 20])
    assert insertions.insert("a" * 202_000) == "a" * 202_000
    with pytest.raises(PageError):
        insertions.insert("a")
