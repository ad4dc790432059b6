"""The ramp: the definition, its ends, and the host library's schedule."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.sparse_encoder.callbacks.splade_callbacks import SpladeRegularizerWeightSchedulerCallback
from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss

from vocable.errors import ArgumentError
from vocable.objectives.regularizers import ramp


@given(st.integers(0, 500), st.integers(1, 500), st.floats(0.01, 1))
def test_it_is_the_definition(step, total, share):
    done = step / (total * share)
    linear = done if done < 1 else 1.0
    assert ramp(step, total, share=share) == pytest.approx(linear**2, rel=1e-12)
    assert ramp(step, total, shape="linear", share=share) == pytest.approx(linear, rel=1e-12)
    assert ramp(step, total, shape="constant", share=share) == 1


@pytest.mark.parametrize("shape", ["linear", "quadratic"])
@pytest.mark.parametrize(("total", "share"), [(300, 1 / 3), (40, 0.5), (3, 1 / 3)])
def test_where_it_takes_whole_steps_it_is_the_host_librarys(toy_model, shape, total, share):
    ranking = SparseMultipleNegativesRankingLoss(toy_model)
    host = SpladeLoss(toy_model, ranking, document_regularizer_weight=1.0, query_regularizer_weight=1.0)
    callback = SpladeRegularizerWeightSchedulerCallback(host, shape, share)
    callback.on_train_begin(None, SimpleNamespace(max_steps=total), None)
    for step in range(total):
        callback.on_step_begin(None, SimpleNamespace(global_step=step), None)
        assert ramp(step, total, shape=shape, share=share) == pytest.approx(host.document_regularizer_weight)


@pytest.mark.parametrize(
    "wrong", [{"step": -1}, {"total_steps": 0}, {"share": 0.0}, {"share": 1.5}, {"shape": "cubic"}]
)
def test_what_is_no_ramp_is_an_error(wrong):
    with pytest.raises(ArgumentError, match="ramp"):
        ramp(**{"step": 1, "total_steps": 10, **wrong})
