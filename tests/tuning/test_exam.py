"""The exam: who is in it, what is learned from, and what its answers say."""

from __future__ import annotations

import random
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp
from sentence_transformers import SparseEncoder

from vocable.data import Document, Qrel, Query
from vocable.errors import DataError
from vocable.evaluation.encoded import encode_dataset
from vocable.evaluation.quality import Evaluation
from vocable.evaluation.retrievers import lexical_index
from vocable.training_options import TuningSources
from vocable.tuning.exam import (
    ASKED,
    ENOUGH_ASKED,
    EXAM_MEASURE,
    EXAM_RECALL,
    FEWEST_DOCUMENTS,
    MOST_QUESTIONS,
    ONE_IN,
    answers,
    change,
    check_count,
    distinct,
    make_exam,
    read_asked,
)
from vocable.tuning.plan import Reading, TuningSpeed, make_plan
from vocable.tuning.questions import QUESTION_KINDS, Rarity, question


def rarity_of(documents: list[Document]) -> Rarity:
    return Rarity(document.full for document in documents)


def test_one_in_five_documents_gives_a_learned_question_and_keywords(many: list[Document]) -> None:
    exam, rarity = make_exam(many, rarity_of(many), 0), rarity_of(many)
    queries = {query.id: query.text for query in exam.dataset.queries}
    by_kind = exam.by_kind()
    assert [*by_kind] == [*QUESTION_KINDS]
    count = len(many) // ONE_IN
    assert len(by_kind["title"]) + len(by_kind["sentence"]) == len(by_kind["keywords"]) == count
    assert abs(len(by_kind["title"]) - len(by_kind["sentence"])) <= 1
    assert len(queries) == 2 * count == len(exam.dataset.judgments)
    searched, before = {one.id: one for one in exam.dataset.documents}, {one.id: one for one in many}
    assert [*searched] == [*before]  # the whole collection is searched
    asked = set()
    for judged in exam.dataset.judgments:
        kind = exam.kinds[judged.query_id]
        document = (searched if kind == "keywords" else before)[judged.doc_id]  # keywords are of what remains
        made = question(document, kind, rarity, 0)  # type: ignore[arg-type]
        assert made is not None
        assert (queries[judged.query_id], searched[judged.doc_id]) == (made.query, made.document)
        asked.add(judged.doc_id)
    assert len(asked) == count
    assert all(searched[name] == one for name, one in before.items() if name not in asked)


def test_documents_of_the_exam_and_their_near_copies_are_not_learned_from(many: list[Document]) -> None:
    for seed in range(3):
        exam = make_exam(many, rarity_of(many), seed)
        held = {judged.doc_id for judged in exam.dataset.judgments}
        learned = {document.id for document in exam.training}
        assert not held & learned
        runs = {name: _runs(one) for name, one in ((one.id, one) for one in many)}
        seen = set().union(*(runs[name] for name in held))
        for name, own in runs.items():
            if name not in held:
                assert (name in learned) == (len(own & seen) <= 0.2 * len(own)), name
        copies = {f"d{number * 5}": f"copy{number}" for number in range(60)}
        long = {name for name in copies if len(runs[name]) > 40}
        assert long & held
        assert not {copies[name] for name in long & held} & learned
        assert not {name for name in long if copies[name] in held} & learned
        assert [one for one in many if one.id in learned] == list(exam.training)  # as they were, in order


def _runs(document: Document) -> set[tuple[str, ...]]:
    parts = document.full.lower().replace(".", " ").split()
    return {tuple(parts[i : i + 8]) for i in range(max(1, len(parts) - 7))}


def test_the_exam_is_the_same_in_any_order(many: list[Document]) -> None:
    shuffled = random.Random(1).sample(many, len(many))
    one, other = (make_exam(some, rarity_of(some), 4) for some in (many, shuffled))
    assert {query.text for query in one.dataset.queries} == {query.text for query in other.dataset.queries}
    assert {document.id for document in one.training} == {document.id for document in other.training}
    apart = make_exam(many, rarity_of(many), 5)
    assert {query.text for query in one.dataset.queries} != {query.text for query in apart.dataset.queries}


def test_the_exam_has_at_most_the_asked_number_of_questions() -> None:
    text = "some words of number {} and of {} in one sentence that is long"
    documents = [Document(f"{i}", text.format(i, i * i)) for i in range(ONE_IN * MOST_QUESTIONS + 99)]
    exam = make_exam(documents, rarity_of(documents), 0)
    assert {kind: len(queries) for kind, queries in exam.by_kind().items()} == {
        "sentence": MOST_QUESTIONS,
        "keywords": MOST_QUESTIONS,
    }


@pytest.mark.parametrize("text", ["the", "12 34", "猫", "☃", "an old fox of few words"])
def test_documents_that_suit_no_question_are_refused(text: str) -> None:
    documents = [Document(f"{i}", text) for i in range(FEWEST_DOCUMENTS)]
    with pytest.raises(DataError):
        make_exam(documents, rarity_of(documents), 0)


def test_queries_of_people_are_a_kind_of_their_own(many: list[Document]) -> None:
    asked = [Query("1", "bad dem"), Query("title-0", "gol")]
    judged = [Qrel("1", "d3", 2), Qrel("1", "d4", 0), Qrel("title-0", "d9", 1)]
    exam = make_exam(many, rarity_of(many), 0, asked, judged)
    without = make_exam(many, rarity_of(many), 0)
    assert exam.by_kind() == without.by_kind() | {ASKED: ["asked-1", "asked-title-0"]}
    assert exam.training == without.training
    mine = [one for one in exam.dataset.judgments if one.query_id.startswith(ASKED)]
    assert mine == [Qrel("asked-1", "d3", 2), Qrel("asked-1", "d4", 0), Qrel("asked-title-0", "d9", 1)]
    assert len({query.id for query in exam.dataset.queries}) == len(exam.dataset.queries)


@given(st.lists(st.text(alphabet="ab. \u200bA猫", max_size=6), max_size=20))
def test_distinct_documents_have_different_words(texts: list[str]) -> None:
    kept, left = distinct(Document(f"{row}", text) for row, text in enumerate(texts))
    keys = [" ".join(text.lower().replace(".", " ").replace("\u200b", " ").split()) for text in texts]
    first = [f"{row}" for row, key in enumerate(keys) if key and key not in keys[:row]]
    if "猫" not in "".join(texts):  # whose runs are cut into pairs
        assert [one.id for one in kept] == first
    assert len(kept) + left == len(texts)


@pytest.mark.parametrize(("count", "said"), [(0, "0 distinct"), (1, "1 distinct document:"), (299, "299 distinct")])
def test_few_documents_are_refused(count: int, said: str) -> None:
    with pytest.raises(DataError, match=f"{said}.*300.*queries and judgments.*generator"):
        check_count([Document(f"{i}", "text") for i in range(count)], {})
    check_count([Document(f"{i}", "text") for i in range(300)], {})


@pytest.mark.parametrize("judged", [ENOUGH_ASKED - 1, ENOUGH_ASKED])
def test_judged_queries_decide_where_documents_are_few_or_short(judged: int, tmp_path: Path) -> None:
    queries, judgments = tmp_path / "queries.tsv", tmp_path / "qrels.tsv"
    queries.write_text("".join(f"{i}\tfox {i}\n" for i in range(judged)), encoding="utf-8")
    judgments.write_text("query-id\tcorpus-id\tscore\n" + "".join(f"{i}\t{i}\t1\n" for i in range(judged)))
    sources = TuningSources(queries=str(queries), judgments=str(judgments))
    documents = [Document(f"{i}", f"fox {i}") for i in range(20)]
    asked = read_asked(sources, {document.id for document in documents})
    if judged < ENOUGH_ASKED:
        for call in (
            lambda: check_count(documents, sources),
            lambda: make_exam(documents, rarity_of(documents), 0, asked.judged, asked.judgments),
        ):
            with pytest.raises(DataError, match=f"{ENOUGH_ASKED} judged queries.*queries and judgments"):
                call()
        return
    check_count(documents, sources)
    exam = make_exam(documents, rarity_of(documents), 0, asked.judged, asked.judgments)
    assert exam.by_kind() == {ASKED: [f"asked-{i}" for i in range(judged)]}
    assert exam.training == documents


@pytest.mark.slow
def test_a_hundred_thousand_short_documents_take_seconds() -> None:
    """Many short documents need no model before the plan."""
    rng = random.Random(0)
    words = [f"{start}{end}" for start in ("ba", "de", "gi", "ko", "lu") for end in map(str, range(2_000))]
    documents = [Document(f"{i}", " ".join(rng.choices(words, k=12))) for i in range(100_000)]
    began = perf_counter()
    kept, left = distinct([*documents, *documents[:1_000]])
    assert (len(kept), left) == (100_000, 1_000)
    plan = make_plan(Reading(101_000, left, 6, 1.2, 0.0, 0.5), TuningSpeed(1_000, 1.0), 600)
    exam = make_exam(kept, rarity_of(kept), 0)
    assert len(exam.dataset.queries) == 2 * MOST_QUESTIONS
    assert len(exam.training) > 99_000
    assert plan.collection == 20_000
    assert perf_counter() - began < 60


ROWS = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=30)


def evaluation(values: list[float]) -> Evaluation:
    per_query = {f"q{row}": value for row, value in enumerate(values)}
    return Evaluation(
        "m",
        "exam",
        {EXAM_MEASURE: float(np.mean(values))},
        {EXAM_MEASURE: per_query},
        convention="trec_eval",
        ties="search",
    )


@given(ROWS, st.data())
def test_the_interval_of_a_change_is_students(rows: list[tuple[float, float]], data: st.DataObject) -> None:
    before, after = (np.array(side) for side in zip(*rows, strict=True))
    some = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=2, unique=True))
    found = change(evaluation([*before]), evaluation([*after]), [f"q{row}" for row in some])
    differences = after[some] - before[some]
    assert found.queries == len(some)
    assert (found.before, found.after) == pytest.approx((before[some].mean(), after[some].mean()))
    assert found.difference == pytest.approx(differences.mean(), abs=1e-12)
    if differences.std() > 1e-6:
        expected = ttest_1samp(differences, 0).confidence_interval(0.95)
        assert (found.low, found.high) == pytest.approx(tuple(expected), rel=1e-6)
    else:
        assert (found.low, found.high) == pytest.approx((differences.mean(),) * 2, abs=1e-4)


@pytest.mark.slow
def test_answers_to_the_exam_are_those_of_an_exact_search(
    toy_model: SparseEncoder, page_documents: list[Document]
) -> None:
    exam = make_exam(page_documents, rarity_of(page_documents), 0)
    encoded = encode_dataset(toy_model, exam.dataset)
    [found] = answers([encoded], lexical_index(exam.dataset), exam.dataset)
    scores = encoded.queries.toarray() @ encoded.documents.toarray().T
    places = {document.id: row for row, document in enumerate(exam.dataset.documents)}
    answer = {judged.query_id: places[judged.doc_id] for judged in exam.dataset.judgments}
    for row, query in enumerate(exam.dataset.queries):
        mine = scores[row, answer[query.id]]
        least, most = (scores[row] > mine).sum() + 1, (scores[row] >= mine).sum()  # ranks, with ties
        gain = found.alone.per_query[EXAM_MEASURE][query.id]
        limits = [1 / np.log2(rank + 1) if rank <= 10 and mine > 0 else 0.0 for rank in (most, least)]
        assert limits[0] - 1e-4 <= gain <= limits[1] + 1e-4
        assert found.alone.per_query[EXAM_RECALL][query.id] == float(mine > 0)  # of 90 documents all are found
    assert set(found.hybrid.per_query[EXAM_MEASURE]) == set(answer)
    assert found.hybrid.per_query[EXAM_MEASURE] != found.alone.per_query[EXAM_MEASURE]


@pytest.fixture
def asked(tmp_path: Path) -> dict[str, str]:
    queries, judgments = tmp_path / "queries.tsv", tmp_path / "qrels.tsv"
    queries.write_text("1\tfirst\n2\tsecond\n3\tthird\n4\tfourth\n", encoding="utf-8")
    judgments.write_text("query-id\tcorpus-id\tscore\n1\td1\t1\n1\td2\t0\n2\tgone\t1\n3\td1\t0\n9\td1\t1\n")
    return {"queries": str(queries), "judgments": str(judgments)}


def test_queries_with_a_relevant_document_are_judged_and_others_learned_from(asked: dict[str, str]) -> None:
    found = read_asked(asked, {"d1", "d2", "d3"})  # type: ignore[arg-type]
    assert [query.id for query in found.judged] == ["1"]
    assert found.judgments == [Qrel("1", "d1", 1), Qrel("1", "d2", 0)]
    # Of query 2 the relevant document is not here, of 3 and 4 none is known: they are learned from.
    assert [query.id for query in found.unjudged] == ["2", "3", "4"]
    alone = read_asked({"queries": asked["queries"]}, {"d1"})
    assert (alone.judged, alone.judgments, len(alone.unjudged)) == ([], [], 4)
    assert read_asked({}, {"d1"}) == ([], [], [])
