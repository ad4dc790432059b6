"""FLOPS: the definition with threshold and term weights, gradients, the host library's loss, and split batches."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.sparse_encoder.callbacks.splade_callbacks import SpladeRegularizerWeightSchedulerCallback
from sentence_transformers.sparse_encoder.losses import FlopsLoss, SparseMultipleNegativesRankingLoss, SpladeLoss

from vocable.errors import ArgumentError
from vocable.objectives.regularizers import (
    df_weights,
    differing_terms,
    flops,
    joint_flops,
    l1,
    overlap_distance,
)
from vocable.objectives.settings import Overlap, ramp


def reference(vectors, threshold, term_weights):
    total = 0.0
    for j in range(vectors.shape[1]):
        kept = [w[j] for w in vectors if threshold == 0 or np.count_nonzero(w) > threshold]
        total += (term_weights[j] * sum(kept) / len(vectors)) ** 2
    return total


@given(st.integers(0, 99), st.integers(1, 6), st.integers(1, 9), st.integers(0, 9), st.booleans())
def test_flops_is_the_sum_of_squared_mean_weights(sparse, seed, texts, terms, threshold, weighted):
    vectors, idf = sparse(seed, texts, terms), 5 * np.random.default_rng(seed).random(terms)
    weights = {"term_weights": torch.tensor(idf)} if weighted else {}
    found = flops(torch.tensor(vectors), threshold=threshold, **weights)
    expected = reference(vectors, threshold, idf if weighted else np.ones(terms))
    assert float(found) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_flops_has_the_gradient_of_finite_differences():
    vectors = torch.tensor(np.random.default_rng(0).random((4, 5)))
    vectors[1, 1:] = 0  # one active term, or two beside a zero that gradcheck moves: below the threshold
    weights = torch.tensor([1.0, 0.5, 0.0, 2.0, 3.0]).double()
    assert torch.autograd.gradcheck(lambda w: flops(w, threshold=2, term_weights=weights), vectors.requires_grad_())


@pytest.mark.parametrize("threshold", [0, 1, 4, 9])
def test_flops_equals_sentence_transformers(toy_model, sparse, threshold):
    vectors = torch.tensor(sparse(3, 12, 9))
    theirs = FlopsLoss(toy_model, threshold=threshold or None).compute_loss_from_embeddings(vectors)
    assert float(flops(vectors, threshold=threshold)) == pytest.approx(float(theirs), rel=1e-9)


@given(st.integers(0, 99), st.integers(1, 4), st.integers(1, 4))
def test_the_mean_over_devices_is_never_below_that_of_the_gathered_batch(sparse, seed, devices, texts):
    parts = [torch.tensor(sparse(seed + 100 * i, texts, 7)) for i in range(devices)]
    apart = sum(flops(part) for part in parts) / devices
    assert float(flops(torch.cat(parts))) <= float(apart) + 1e-12


def reference_df_flops(x, alpha, beta):
    if x == 0:
        return 0.0
    with np.errstate(over="ignore"):  # a weight of 0 in the end
        return 1 / (1 + (np.float64(x) ** (np.log(2) / np.log(alpha)) - 1) ** beta)


@given(st.integers(0, 99), st.floats(0.01, 0.9), st.floats(0.5, 20))
def test_df_flops_follows_its_definition(seed, alpha, beta):
    shares = np.append(np.random.default_rng(seed).integers(0, 50, size=20) / 50, [0.0, 1e-6, alpha, 1.0])
    expected = [reference_df_flops(float(x), alpha, beta) for x in shares]
    found = df_weights(torch.tensor(shares), alpha=alpha, beta=beta)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_df_flops_weights_rise_from_0_to_1_without_a_gap(dtype):
    shares = torch.cat([torch.logspace(-30, 0, 500, dtype=dtype), torch.tensor([1 - 1e-7], dtype=dtype)]).sort().values
    weights = df_weights(torch.cat([torch.zeros(1, dtype=dtype), shares]))
    assert weights[0] == 0
    assert weights[-1] == 1
    assert (weights.diff() >= 0).all()


def test_the_penalty_multiplies_the_means(sparse):
    vectors = sparse(0, 6, 9)
    shares = (vectors > 0).mean(axis=0)
    weights = np.array([reference_df_flops(x, 0.1, 10.0) for x in shares])
    found = flops(torch.tensor(vectors), term_weights=df_weights(torch.tensor(shares)))
    assert float(found) == pytest.approx(((weights * vectors.mean(axis=0)) ** 2).sum(), rel=1e-9)


@pytest.mark.parametrize("shares", [[0.5, 3.0], [-0.1], [float("nan")]])
def test_document_frequencies_must_be_shares(shares):
    with pytest.raises(ArgumentError):
        df_weights(torch.tensor(shares))


@pytest.mark.parametrize("wrong", [{"alpha": 0.0}, {"alpha": 1.0}, {"beta": 0.0}])
def test_parameters_out_of_range_are_errors(wrong):
    with pytest.raises(ArgumentError):
        df_weights(torch.tensor([0.5]), **wrong)


@given(st.integers(0, 99), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9))
def test_joint_flops_is_the_mean_score_of_all_pairs(sparse, seed, count, documents, terms):
    q, d = sparse(seed, count, terms), sparse(seed + 1, documents, terms)
    expected = np.mean([[sum(a * b) for b in d] for a in q])
    assert float(joint_flops(torch.tensor(q), torch.tensor(d))) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_joint_flops_of_one_side_with_itself_is_flops(sparse):
    vectors = torch.tensor(sparse(0, 5, 9))
    torch.testing.assert_close(joint_flops(vectors, vectors), flops(vectors))


def test_joint_flops_has_the_gradient_of_finite_differences(sparse):
    vectors = (torch.tensor(sparse(seed, 3, 5)).requires_grad_() for seed in range(2))
    assert torch.autograd.gradcheck(joint_flops, tuple(vectors))


@given(st.integers(0, 99), st.integers(1, 6), st.integers(1, 9))
def test_l1_is_the_mean_of_sums(sparse, seed, texts, terms):
    vectors = sparse(seed, texts, terms)
    assert float(l1(torch.tensor(vectors))) == pytest.approx(np.mean([sum(w) for w in vectors]), rel=1e-9, abs=1e-12)


def test_l1_has_the_gradient_of_finite_differences(sparse):
    assert torch.autograd.gradcheck(l1, torch.tensor(sparse(0, 3, 5)).requires_grad_())


def reference_overlap(queries, documents):
    distances = []
    for query, document in zip(queries, documents, strict=True):
        pairs = [(1 - np.exp(-w), 1 - np.exp(-u)) for w, u in zip(query, document, strict=True)]
        either = sum(max(pair) for pair in pairs)
        distances.append(1 - sum(min(pair) for pair in pairs) / either if either else 1.0)
    return np.mean(distances)


@given(st.integers(0, 99), st.integers(1, 6), st.integers(1, 9))
def test_overlap_follows_its_definition(sparse, seed, pairs, terms):
    queries, documents = sparse(seed, pairs, terms), sparse(seed + 1, pairs, terms)
    found = overlap_distance(torch.tensor(queries), torch.tensor(documents))
    assert float(found) == pytest.approx(reference_overlap(queries, documents), rel=1e-9, abs=1e-12)


@given(st.sets(st.integers(0, 8)), st.sets(st.integers(0, 8)))
def test_overlap_of_heavy_weights_is_the_jaccard_distance(one, other):
    query, document = (torch.tensor([[100.0 * (j in terms) for j in range(9)]]) for terms in (one, other))
    expected = 1 - len(one & other) / len(one | other) if one | other else 1
    assert float(overlap_distance(query, document)) == pytest.approx(expected)


@given(st.integers(0, 99), st.integers(1, 6), st.integers(1, 9))
def test_hamming_overlap_follows_its_definition(sparse, seed, pairs, terms):
    queries, documents = sparse(seed, pairs, terms), sparse(seed + 1, pairs, terms)
    expected = np.mean(
        [
            sum(abs(np.exp(-w) - np.exp(-u)) for w, u in zip(*pair, strict=True))
            for pair in zip(queries, documents, strict=True)
        ]
    )
    assert float(differing_terms(torch.tensor(queries), torch.tensor(documents))) == pytest.approx(expected, abs=1e-12)
    batch = torch.tensor(queries), torch.tensor(np.concatenate([documents, queries]))
    assert float(Overlap(distance="hamming").value(*batch)) == pytest.approx(expected, abs=1e-12)


@given(st.sets(st.integers(0, 8)), st.sets(st.integers(0, 8)))
def test_hamming_overlap_of_heavy_weights_is_the_hamming_distance(one, other):
    query, document = (torch.tensor([[100.0 * (j in terms) for j in range(9)]]) for terms in (one, other))
    assert float(differing_terms(query, document)) == pytest.approx(len(one ^ other))


def test_overlap_has_the_gradient_of_finite_differences():
    rng = np.random.default_rng(0)
    queries, documents = (torch.tensor(rng.random((4, 5))).requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(overlap_distance, (queries, documents))


def test_a_step_along_the_gradient_of_overlap_brings_terms_together():
    query, document = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[0.5, 0.0, 3.0]])
    query.requires_grad_(), document.requires_grad_()
    overlap_distance(query, document).backward()
    # Less of what is heavier than the other's, or what the other has not; more of what is lighter.
    assert query.grad.sign().tolist() == [[1, 1, -1]]
    assert document.grad.sign().tolist() == [[-1, -1, 1]]


def test_pairs_without_a_term_share_nothing_and_have_finite_gradients():
    queries, documents = torch.zeros(2, 3), torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    found = overlap_distance(queries.requires_grad_(), documents.requires_grad_())
    assert found.item() == 1
    found.backward()
    assert torch.isfinite(queries.grad).all()
    assert torch.isfinite(documents.grad).all()


@given(st.integers(0, 500), st.integers(1, 500), st.floats(0.01, 1))
def test_ramps_follow_their_definitions(step, total, share):
    done = step / (total * share)
    linear = done if done < 1 else 1.0
    assert ramp(step, total, share=share) == pytest.approx(linear**2, rel=1e-12)
    assert ramp(step, total, shape="linear", share=share) == pytest.approx(linear, rel=1e-12)
    assert ramp(step, total, shape="constant", share=share) == 1


@pytest.mark.parametrize("shape", ["linear", "quadratic"])
@pytest.mark.parametrize(("total", "share"), [(300, 1 / 3), (40, 0.5), (3, 1 / 3)])
def test_ramps_in_whole_steps_equal_sentence_transformers(toy_model, shape, total, share):
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
def test_an_unknown_ramp_is_an_error(wrong):
    with pytest.raises(ArgumentError):
        ramp(**{"step": 1, "total_steps": 10, **wrong})
