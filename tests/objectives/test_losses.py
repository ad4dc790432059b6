"""Packed vectors: the same as dense ones with what is light set to zero, joined, cut, normalized and multiplied."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, logsumexp, rel_entr
from sentence_transformers.sparse_encoder.losses import (
    SparseDistillKLDivLoss,
    SparseMarginMSELoss,
    SparseMultipleNegativesRankingLoss,
)
from sentence_transformers.util import cos_sim

from vocable.errors import ArgumentError
from vocable.objectives.losses import (
    Batch,
    Queue,
    alignment,
    empty,
    ensemble,
    info_nce,
    join,
    kl,
    last_rows,
    margin_mse,
    pack,
    packed_scores,
    top_k_mask,
    unit,
)
from vocable.training.recipe import TrainingSettings

V = 7


def dense(packed, v=V):
    rows = len(packed.offsets) - 1
    found = np.zeros((rows, v))
    for row in range(rows):
        place = slice(int(packed.offsets[row]), int(packed.offsets[row + 1]))
        found[row, packed.terms[place]] = packed.weights[place]
    return found


def heaviest(vectors, k):
    kept = np.zeros_like(vectors)
    for row, vector in enumerate(vectors):
        terms = np.argsort(-vector, kind="stable")[:k]
        kept[row, terms] = vector[terms]
    return kept


@given(st.integers(0, 99), st.integers(1, 5), st.integers(1, 9), st.integers(1, 9))
def test_the_heaviest_terms_are_kept(sparse, seed, rows, k, count):
    vectors = sparse(seed, rows, V)
    packed = pack(torch.tensor(vectors), k)
    expected = heaviest(vectors, k)
    np.testing.assert_array_equal(dense(packed), expected)
    assert len(packed.weights) == np.count_nonzero(expected)
    np.testing.assert_array_equal(dense(last_rows(packed, count)), expected[-count:])
    np.testing.assert_array_equal(dense(join(packed, packed)), np.concatenate([expected, expected]))


@given(st.integers(0, 99), st.integers(1, 4), st.integers(1, 5))
def test_scores_are_those_of_dense_vectors(sparse, seed, b, m):
    queries, documents = sparse(seed, b, V), sparse(seed + 1, m, V)
    packed = pack(torch.tensor(documents), V)
    np.testing.assert_allclose(packed_scores(torch.tensor(queries), packed), queries @ documents.T, atol=1e-12)
    lengths = np.linalg.norm(documents, axis=1, keepdims=True)
    np.testing.assert_allclose(dense(unit(packed)), documents / np.where(lengths > 0, lengths, 1), atol=1e-12)


def test_scores_of_packed_vectors_have_the_gradient_of_dense_ones(sparse):
    packed = pack(torch.tensor(sparse(1, 5, V)), V)
    queries = torch.tensor(np.random.default_rng(0).random((3, V))).requires_grad_()
    assert torch.autograd.gradcheck(lambda q: packed_scores(q, packed), (queries,))


def test_a_batch_without_rows_has_scores():
    none = empty(torch.empty(0))
    assert packed_scores(torch.ones(3, V), none).shape == (3, 0)
    assert join(none, pack(torch.eye(2), 1)).offsets.tolist() == [0, 1, 2]
    assert len(last_rows(none, 4).offsets) == len(unit(none).offsets) == 1


def test_a_packed_weight_takes_eight_bytes():
    packed = pack(torch.rand(4, 100), 100)
    held = sum(tensor.numel() * tensor.element_size() for tensor in packed)
    assert held == pytest.approx(8 * 400, rel=0.01)


def reference(queries, documents, tau, margin, cosine):
    losses = []
    for i, query in enumerate(queries):
        scores = documents @ query
        if cosine:
            lengths = np.linalg.norm(documents, axis=1) * np.linalg.norm(query)
            scores = np.divide(scores, lengths, out=np.zeros_like(scores), where=lengths > 0)
        scores[i] -= margin
        losses.append(logsumexp(scores / tau) - scores[i] / tau)
    return np.mean(losses)


@given(st.integers(0, 99), st.integers(2, 5), st.floats(0.05, 20), st.floats(0, 3))
def test_cosine_stands_beside_the_inner_product(sparse, seed, count, tau, margin):
    queries, documents = sparse(seed, count, 7), sparse(seed + 1, 2 * count, 7)
    none = torch.empty(0)
    batch = Batch(torch.tensor(queries), torch.tensor(documents), none, none)
    settings = TrainingSettings.model_validate(
        {"steps": 1, "losses": [{"name": "info_nce"}, {"name": "cosine", "temperature": tau, "margin": margin}]}
    )
    dot, cosine = (float(loss.value(batch)) for loss in settings.losses)
    assert dot == pytest.approx(reference(queries, documents, 1.0, 0.0, False), rel=1e-9, abs=1e-12)
    assert cosine == pytest.approx(reference(queries, documents, tau, margin, True), rel=1e-9, abs=1e-12)
    assert settings.monitored_loss == settings.losses[0]


@given(st.integers(0, 99), st.integers(1, 5), st.integers(0, 6), st.floats(0.05, 20), st.floats(0, 3), st.booleans())
def test_info_nce_follows_its_definition(sparse, seed, count, negatives, tau, margin, cosine):
    queries, documents = sparse(seed, count, 7), sparse(seed + 1, count + negatives, 7)
    found = info_nce(torch.tensor(queries), torch.tensor(documents), temperature=tau, margin=margin, cosine=cosine)
    assert float(found) == pytest.approx(reference(queries, documents, tau, margin, cosine), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("cosine", [False, True])
def test_info_nce_has_the_gradient_of_finite_differences(cosine):
    rng = np.random.default_rng(0)
    queries, documents = torch.tensor(rng.random((3, 5))), torch.tensor(rng.random((7, 5)))
    assert torch.autograd.gradcheck(
        lambda q, d: info_nce(q, d, temperature=0.7, margin=0.2, cosine=cosine),
        (queries.requires_grad_(), documents.requires_grad_()),
    )


def test_an_empty_text_gets_a_gradient_of_ordinary_size():
    queries, documents = torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    info_nce(queries, documents.requires_grad_(), cosine=True).backward()
    assert documents.grad.abs().max() <= 1


@given(st.integers(0, 99), st.integers(1, 5), st.integers(0, 6), st.floats(0.05, 20), st.booleans())
def test_a_queue_is_further_documents_without_gradients(sparse, seed, count, queued, tau, cosine):
    queries, documents, others = (torch.tensor(sparse(seed + i, n, 7)) for i, n in enumerate((count, count, queued)))
    mine, theirs = (queries.clone().requires_grad_() for _ in range(2))
    queue = Queue(pack(others, 7), torch.zeros(count, queued, dtype=torch.bool))
    found = info_nce(mine, documents, temperature=tau, cosine=cosine, queue=queue)
    expected = info_nce(theirs, torch.cat([documents, others]), temperature=tau, cosine=cosine)
    torch.testing.assert_close(found, expected)
    found.backward()
    expected.backward()
    torch.testing.assert_close(mine.grad, theirs.grad)


def test_documents_left_out_of_the_queue_are_no_negatives(sparse):
    queries, documents, others = (torch.tensor(sparse(i, n, 7)) for i, n in enumerate((3, 3, 4)))
    left_out = torch.tensor([[False, True, False, False], [True] * 4, [False] * 4])
    found = info_nce(queries, documents, queue=Queue(pack(others, 7), left_out))
    scores = np.concatenate([queries @ documents.T, np.where(left_out, -np.inf, queries @ others.T)], axis=1)
    assert float(found) == pytest.approx(np.mean(logsumexp(scores, axis=1) - scores.diagonal()))


def test_scores_in_the_thousands_stay_exact():
    queries, documents = torch.full((2, 3), 60.0), torch.tensor([[60.0] * 3, [59.0] * 3, [61.0] * 3])
    assert float(info_nce(queries, documents)) == pytest.approx((180 + 360) / 2)


@pytest.mark.parametrize("scale", [1.0, 0.25, 20.0])
@pytest.mark.parametrize("cosine", [False, True])
def test_info_nce_equals_sentence_transformers(toy_model, sparse, scale, cosine):
    columns = [torch.tensor(sparse(seed, 5, 9)) for seed in range(4)]
    similarity = {"similarity_fct": cos_sim} if cosine else {}
    host = SparseMultipleNegativesRankingLoss(toy_model, scale=scale, **similarity)
    theirs = host.compute_loss_from_embeddings(columns, None)
    ours = info_nce(columns[0], torch.cat(columns[1:]), temperature=1 / scale, cosine=cosine)
    assert float(ours) == pytest.approx(float(theirs), rel=1e-9)


def test_a_query_without_a_positive_is_an_error():
    with pytest.raises(ArgumentError):
        info_nce(torch.ones(3, 4), torch.ones(2, 4))


def reference_kl(scores, taught, tau, teacher_tau):
    student, teacher = log_softmax(scores / tau, axis=1), log_softmax(taught / teacher_tau, axis=1)
    return (np.exp(teacher) * (teacher - student)).sum(axis=1).mean()


@given(st.integers(0, 99), st.integers(1, 5), st.integers(1, 7), st.floats(0.05, 3), st.floats(0.05, 3))
def test_kl_is_the_divergence_of_the_two_softmaxes(seed, queries, candidates, tau, teacher_tau):
    rng = np.random.default_rng(seed)
    scores, taught = rng.normal(size=(2, queries, candidates))
    found = kl(torch.tensor(scores), torch.tensor(taught), temperature=tau, teacher_temperature=teacher_tau)
    assert float(found) == pytest.approx(reference_kl(scores, taught, tau, teacher_tau), rel=1e-9, abs=1e-12)


def test_kl_has_the_gradient_of_finite_differences():
    rng = np.random.default_rng(0)
    scores, taught = (torch.tensor(rng.normal(size=(3, 4))) for _ in range(2))
    assert torch.autograd.gradcheck(
        lambda s: kl(s, taught, temperature=0.7, teacher_temperature=0.3), scores.requires_grad_()
    )


@pytest.mark.parametrize(("tau", "teacher_tau"), [(1.0, 1.0), (0.5, 0.5), (2.0, 0.3)])
def test_sentence_transformers_multiplies_kl_by_the_temperature_squared(toy_model, tau, teacher_tau):
    rng = np.random.default_rng(0)
    query, *documents = (torch.tensor(rng.random((5, 9)), dtype=torch.float32) for _ in range(4))
    taught = torch.tensor(rng.normal(size=(5, 3)), dtype=torch.float32)
    host = SparseDistillKLDivLoss(toy_model, student_temperature=tau, teacher_temperature=teacher_tau)
    theirs = host.compute_loss_from_embeddings([query, *documents], taught)
    scores = torch.stack([(query * document).sum(dim=1) for document in documents], dim=1)
    ours = kl(scores, taught, temperature=tau, teacher_temperature=teacher_tau)
    assert tau**2 * float(ours) == pytest.approx(float(theirs), rel=1e-5)


def reference_margin_mse(scores, taught):
    return np.mean(
        [((s[0] - s[j]) - (t[0] - t[j])) ** 2 for s, t in zip(scores, taught, strict=True) for j in range(1, len(s))]
    )


@given(st.integers(0, 99), st.integers(1, 5), st.integers(2, 7))
def test_margin_mse_is_the_mean_over_triples(seed, queries, candidates):
    scores, taught = np.random.default_rng(seed).normal(scale=10, size=(2, queries, candidates))
    found = margin_mse(torch.tensor(scores), torch.tensor(taught))
    assert float(found) == pytest.approx(reference_margin_mse(scores, taught), rel=1e-9)


@given(st.floats(-100, 100))
def test_an_offset_of_the_teacher_makes_no_difference(offset):
    scores, taught = torch.tensor([[3.0, 1.0, 2.0]]).double(), torch.tensor([[9.0, 2.0, 0.0]]).double()
    torch.testing.assert_close(margin_mse(scores, taught + offset), margin_mse(scores, taught))


def test_margin_mse_has_the_gradient_of_finite_differences():
    scores, taught = torch.tensor(np.random.default_rng(0).normal(size=(2, 3, 4)))
    assert torch.autograd.gradcheck(lambda s: margin_mse(s, taught), scores.requires_grad_())


@pytest.mark.parametrize("negatives", [1, 3])
def test_margin_mse_equals_sentence_transformers(toy_model, sparse, negatives):
    query, *documents = (torch.tensor(sparse(seed, 5, 9)) for seed in range(2 + negatives))
    taught = torch.tensor(np.random.default_rng(0).normal(size=(5, 1 + negatives)))
    theirs = SparseMarginMSELoss(toy_model).compute_loss_from_embeddings([query, *documents], taught)
    scores = torch.stack([(query * document).sum(dim=1) for document in documents], dim=1)
    assert float(margin_mse(scores, taught)) == pytest.approx(float(theirs), rel=1e-9)


@pytest.mark.parametrize(("one", "other"), [((2, 1), (2, 1)), ((2, 3), (2, 4)), ((2, 3), (1, 3))])
def test_no_negative_or_another_shape_is_an_error(one, other):
    with pytest.raises(ArgumentError):
        margin_mse(torch.ones(one), torch.ones(other))


@given(st.integers(0, 99), st.integers(1, 4), st.integers(1, 4), st.integers(2, 6))
def test_several_teachers_give_the_mean_of_their_z_scores(seed, teachers, queries, candidates):
    scores = np.random.default_rng(seed).normal(scale=5, size=(teachers, queries, candidates))
    z = (scores - scores.mean(axis=2, keepdims=True)) / scores.std(axis=2, keepdims=True)
    found = ensemble([torch.tensor(each) for each in scores])
    np.testing.assert_allclose(found, z.mean(axis=0), atol=1e-9)


@given(st.integers(0, 99), st.lists(st.floats(0.1, 10), min_size=1, max_size=4))
def test_weights_are_those_of_the_mean(seed, weights):
    scores = np.random.default_rng(seed).normal(scale=5, size=(len(weights), 3, 5))
    z = (scores - scores.mean(axis=2, keepdims=True)) / scores.std(axis=2, keepdims=True)
    found = ensemble([torch.tensor(each) for each in scores], weights)
    np.testing.assert_allclose(found, np.average(z, axis=0, weights=weights), atol=1e-9)


@given(st.floats(0.01, 100), st.floats(-50, 50))
def test_scale_and_offset_of_a_teacher_make_no_difference(scale, offset):
    one, other = torch.tensor([[1.0, 2.0, 5.0]]).double(), torch.tensor([[3.0, 1.0, 1.5]]).double()
    torch.testing.assert_close(ensemble([scale * one + offset, other]), ensemble([one, other]))


def test_a_teacher_without_an_opinion_only_halves_the_other():
    one = torch.tensor([[1.0, 2.0, 5.0]])
    torch.testing.assert_close(ensemble([one, torch.full((1, 3), 7.0)]), ensemble([one]) / 2)
    assert float(ensemble([torch.zeros(1, 3)]).abs().max()) == pytest.approx(0.0)


def squared(student, teacher):
    shared = (student > 0) & (teacher > 0)
    return np.mean((student[shared] - teacher[shared]) ** 2) if shared.any() else 0.0


def divergence(student, teacher):
    total = 0.0
    for s, t in zip(student, teacher, strict=True):
        if t.any():
            total += rel_entr(t / t.sum(), np.maximum(s / (s.sum() or 1), 1e-8)).sum()
    return total / len(student)


@pytest.mark.parametrize(("kind", "reference"), [("mse", squared), ("kl", divergence)])
@given(seed=st.integers(0, 99), texts=st.integers(1, 5), terms=st.integers(1, 9))
def test_alignment_follows_its_definition(sparse, kind, reference, seed, texts, terms):
    student, teacher = sparse(seed, texts, terms), sparse(seed + 1, texts, terms)
    found = alignment(torch.tensor(student), torch.tensor(teacher), kind=kind)
    assert float(found) == pytest.approx(reference(student, teacher), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("kind", ["mse", "kl"])
def test_alignment_has_the_gradient_of_finite_differences(sparse, kind):
    student, teacher = torch.tensor(0.1 + np.random.default_rng(0).random((3, 6))), torch.tensor(sparse(1, 3, 6))
    assert torch.autograd.gradcheck(lambda s: alignment(s, teacher, kind=kind), student.requires_grad_())


def test_kl_takes_from_terms_that_the_teacher_has_not_and_mse_leaves_them():
    student, teacher = torch.tensor([[1.0, 1.0]], requires_grad=True), torch.tensor([[1.0, 0.0]])
    (mse,) = torch.autograd.grad(alignment(student, teacher, kind="mse"), student)
    (kl,) = torch.autograd.grad(alignment(student, teacher, kind="kl"), student)
    assert mse.tolist() == [[0.0, 0.0]]
    assert kl.tolist() == [[-0.5, 0.5]]


@given(st.floats(0.01, 100))
def test_the_scale_of_either_makes_no_difference_to_kl(factor):
    student, teacher = torch.tensor([[1.0, 2.0, 0.5]]).double(), torch.tensor([[2.0, 1.0, 0.0]]).double()
    expected = alignment(student, teacher, kind="kl")
    torch.testing.assert_close(alignment(factor * student, teacher, kind="kl"), expected)
    torch.testing.assert_close(alignment(student, factor * teacher, kind="kl"), expected)


def test_alignment_of_other_shapes_or_kinds_is_an_error():
    with pytest.raises(ArgumentError):
        alignment(torch.ones(2, 5), torch.ones(2, 6))
    with pytest.raises(ArgumentError):
        alignment(torch.ones(2, 5), torch.ones(2, 5), kind="cosine")


def reference_top_k(vectors, k):
    masked = np.zeros_like(vectors)
    for row, out in zip(vectors, masked, strict=True):
        kept = np.argsort(-row, kind="stable")[:k]
        out[kept] = row[kept]
    return masked


@given(st.integers(0, 99), st.integers(1, 6), st.integers(1, 12), st.integers(1, 14), st.integers(1, 4))
def test_top_k_keeps_the_heaviest_terms_and_of_ties_the_lower_ids(seed, texts, terms, k, weights):
    vectors = np.random.default_rng(seed).integers(0, weights + 1, size=(texts, terms)).astype(float)
    np.testing.assert_array_equal(top_k_mask(torch.tensor(vectors), k), reference_top_k(vectors, k))


@given(st.integers(0, 99), st.integers(1, 12))
def test_top_k_without_ties_keeps_the_heaviest_terms(sparse, seed, k):
    vectors = sparse(seed, 4, 9)
    np.testing.assert_array_equal(top_k_mask(torch.tensor(vectors), k), reference_top_k(vectors, k))


def test_top_k_of_all_active_terms_changes_nothing(sparse):
    vectors = torch.tensor(sparse(2, 6, 9))
    active = int((vectors > 0).sum(dim=1).max())
    assert torch.equal(top_k_mask(vectors, active), vectors)
    assert not torch.equal(top_k_mask(vectors, active - 1), vectors)


def test_top_k_has_the_gradient_of_finite_differences():
    vectors = torch.tensor(np.random.default_rng(0).permutation(20).reshape(4, 5) / 7)
    assert torch.autograd.gradcheck(lambda w: top_k_mask(w, 2), vectors.requires_grad_())


def test_gradients_of_top_k_go_to_kept_terms_alone():
    vectors = torch.tensor([[3.0, 2.0, 2.0, 1.0]], requires_grad=True)
    top_k_mask(vectors, 2).square().sum().backward()
    assert vectors.grad.tolist() == [[6.0, 4.0, 0.0, 0.0]]


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_top_k_keeps_weights_that_are_not_finite(broken):
    vectors = torch.tensor([[1.0, broken, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]])
    masked = top_k_mask(vectors, 2)
    assert not masked[0].isfinite().all()
    assert masked[1].tolist() == [0.0, 0.0, 3.0, 4.0]


def test_top_k_of_no_terms_is_an_error():
    with pytest.raises(ArgumentError):
        top_k_mask(torch.ones(1, 3), 0)
