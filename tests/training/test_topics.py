"""Topical batches: nothing lost, and what is near is together."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vocable.training.data import InOrder, topical_order


@given(st.integers(0, 99), st.integers(1, 90), st.integers(1, 9))
def test_every_example_stands_in_the_order_once(seed, examples, batch_size):
    rng = np.random.default_rng(seed)
    order = topical_order(rng.normal(size=(examples, 3)).astype(np.float16), batch_size, rng)
    assert sorted(order) == list(range(examples))


def test_a_batch_is_of_one_topic():
    rng = np.random.default_rng(0)
    topics = np.repeat(np.arange(8), 12)  # eight far centres, three batches of four each
    vectors = 10 * np.eye(8)[topics] + rng.normal(scale=0.01, size=(96, 8))
    mixed = rng.permutation(96)
    batches = topics[mixed][topical_order(vectors[mixed], 4, rng)].reshape(-1, 4)
    assert (batches == batches[:, :1]).all()
    assert (np.diff(batches[:, 0]) < 0).any()  # batches in no order


def test_batches_are_nearer_than_chance():
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(512, 16))
    spread = vectors[topical_order(vectors, 16, rng)].reshape(32, 16, 16).var(axis=1).sum(axis=1).mean()
    assert spread < 0.8 * vectors.var(axis=0).sum()


def test_the_sampler_keeps_the_order():
    assert list(InOrder(range(10), batch_size=4, drop_last=True)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
