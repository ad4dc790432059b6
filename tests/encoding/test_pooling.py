from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vocable.encoding.pooling import reduce_texts, runs


@pytest.mark.parametrize("reduce", [torch.amax, torch.sum])
@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=12), columns=st.integers(1, 3))
def test_every_text_is_reduced_by_itself(reduce: Callable[..., torch.Tensor], lengths: list[int], columns: int) -> None:
    offsets = [0, *accumulate(lengths)]
    values = torch.arange(offsets[-1] * columns).remainder(7).float().view(-1, columns)
    whole = torch.full((len(lengths), columns + 2), -1.0)
    reduce_texts(reduce, values, runs(offsets), whole[:, 1:-1])
    wanted = [reduce(values[offsets[i] : offsets[i + 1]], dim=0) for i in range(len(lengths))]
    assert torch.equal(whole[:, 1:-1], torch.stack(wanted))
    assert (whole[:, [0, -1]] == -1).all()  # a part of a larger matrix, and nothing beside it


@given(st.lists(st.integers(1, 4), min_size=1, max_size=30))
def test_runs_are_as_long_as_can_be_and_leave_nothing_out(lengths: list[int]) -> None:
    offsets = [0, *accumulate(lengths)]
    found = runs(offsets)
    assert [run.length for run in found for _ in range(run.texts.stop - run.texts.start)] == lengths
    assert all(one.length != next_one.length for one, next_one in pairwise(found))
    assert [run.tokens.start for run in found] == [offsets[run.texts.start] for run in found]
    assert found[-1].tokens.stop == offsets[-1]
