from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vocable import options
from vocable.cli import main
from vocable.data import Example
from vocable.errors import ArgumentError, DataError
from vocable.evaluation.dataset import load_dataset
from vocable.evaluation.testsets import (
    DrawnTestset,
    QueryLog,
    cluster,
    draw_testset,
    read_log,
    text_embeddings,
    words,
    write_beir,
)
from vocable.options import check

THEMES = ["fox owl wolf bear", "list tuple dict set", "rain snow hail fog"]


def make_log(seed: int, scored: bool = False, queries: int = 90) -> QueryLog:
    """Queries of three words of a theme, answered by texts that have none to all of them; some words are everywhere."""
    rng = np.random.default_rng(seed)
    examples, everywhere = [], ["why", "how", *" ".join(THEMES).split()]
    for number in range(queries):
        theme = THEMES[number % 3].split()
        query = " ".join([*rng.permutation(theme)[:2], str(rng.choice(["why", "how"])), f"n{number}"])
        for _ in range(int(rng.integers(1, 4))):
            held = rng.permutation(query.split())[: number % 5]
            text = " ".join([*held, *rng.choice(everywhere, 3), f"t{rng.integers(10_000)}"])
            scores = (float(rng.integers(1, 9)),) if scored else ()
            examples += [Example(query, text, scores=scores)] * int(1 if scored else rng.integers(1, 4))
    return read_log(examples)


def check_all(selection: DrawnTestset, drawn: options.TestsetOptions, groups: np.ndarray) -> None:
    """Every promise of the module, by its definition, over all pairs of query and document."""
    log = selection.log
    assert len({one.query for one in selection.queries}) == len(selection.queries) <= drawn["queries"]
    count = len(log.documents)
    owned = [{int(groups[q]) for q, answers in enumerate(log.answers) if d in answers} for d in range(count)]
    answering = {d for one in selection.queries for d in log.answers[one.query]}
    for one in selection.queries:
        asked, answers = words(log.queries[one.query]), log.answers[one.query]
        share = [len(asked & words(text)) / len(asked) for text in log.documents]
        ranked = sorted(answers, key=lambda d: (-answers[d], d))
        if drawn["difficulty"] == "plain":
            assert (list(one.positives), one.negatives, one.level) == (ranked, (), None)
            continue
        assert list(one.positives) == ranked[: drawn["positives"]]
        eligible = [
            d
            for d in range(len(share))
            if share[d] >= drawn["min_overlap"] - 1e-9 and int(groups[one.query]) not in owned[d]
        ]
        assert list(one.negatives) == sorted(eligible, key=lambda d: (-share[d], d))[: drawn["negatives"]]
        assert one.negatives
        best = max(share[d] for d in answers)
        assert one.level == ("low" if best < 1 / 3 - 1e-9 else "middle" if best < 2 / 3 - 1e-9 else "high")
    assert not set(selection.distractors) & answering
    assert len(set(selection.levels().values())) <= 1  # as many of each level


@given(st.integers(0, 100), st.booleans(), st.sampled_from(["hard", "plain"]), st.integers(0, 3))
@settings(max_examples=12)
def test_a_made_collection_has_the_described_queries_and_distractors(
    seed: int, scored: bool, difficulty: str, distractors: int
) -> None:
    log = make_log(seed, scored)
    drawing: dict[str, Any] = {"queries": 30, "clusters": 4, "difficulty": difficulty, "positives": 2}
    drawing |= {"negatives": 4, "distractors": distractors}
    selection = draw_testset(log, **drawing, seed=seed)
    check_all(selection, check(options.TestsetOptions, drawing), cluster(text_embeddings(log.queries), 4, seed))
    assert bool(selection.distractors) <= bool(distractors)
    assert draw_testset(log, **drawing, seed=seed) == selection


def test_queries_come_from_all_clusters_alike() -> None:
    log = make_log(3)
    groups = cluster(text_embeddings(log.queries), 4, 0)
    selection = draw_testset(log, queries=12, clusters=4, difficulty="plain")
    sizes = np.bincount(groups, minlength=4)
    drawn = np.bincount([groups[one.query] for one in selection.queries], minlength=4)
    assert (np.minimum(sizes, 3) <= drawn).all()
    other = draw_testset(log, queries=12, clusters=4, difficulty="plain", seed=1)
    assert {one.query for one in other.queries} != {one.query for one in selection.queries}


def test_distractors_are_documents_of_so_many_further_queries_of_each_cluster() -> None:
    log = make_log(5)
    groups = cluster(text_embeddings(log.queries), 4, 0)
    few, all_of_them = (
        draw_testset(log, queries=8, clusters=4, difficulty="plain", distractors=count) for count in (1, 10_000)
    )
    assert few.queries == all_of_them.queries
    taken = {one.query for one in few.queries}
    own = {d for q in taken for d in log.answers[q]}
    assert set(all_of_them.distractors) == set(range(len(log.documents))) - own
    sources = {int(groups[q]) for q, answers in enumerate(log.answers) if set(answers) & set(few.distractors)}
    assert sources == set(groups[[q for q in range(len(groups)) if q not in taken]])


def test_labels_are_the_highest_score_or_the_count() -> None:
    counted = read_log([Example("q", "a"), Example("q", "b"), Example("q", "b")])
    assert counted == QueryLog(["q"], ["a", "b"], [{0: 1, 1: 2}])
    pairs = [("q", -1.0), ("p", 3.0), ("q", -2.0)]
    scored = read_log(Example(query, "a", scores=(label,)) for query, label in pairs)
    assert scored == QueryLog(["q", "p"], ["a"], [{0: -1.0}, {0: 3.0}])


def test_arguments_of_a_test_set_that_cannot_be_are_refused() -> None:
    with pytest.raises(DataError, match=r"score .*'q'"):
        read_log([Example("q", "a", scores=(1.0,)), Example("q", "b")])
    with pytest.raises(DataError):
        read_log([])
    with pytest.raises(DataError):
        draw_testset(read_log([Example("a b", "x"), Example("c d", "y"), Example("e", "z")]), clusters=2)
    with pytest.raises(ArgumentError):
        draw_testset(read_log([Example("a", "x")]), clusters=2)
    for values in ({"queries": 0}, {"clusters": 1}, {"difficulty": "easy"}, {"negatives": 0}, {"min_overlap": 0}):
        with pytest.raises(ArgumentError, match=next(iter(values))):
            draw_testset(make_log(0), **values)  # type: ignore[arg-type]


def test_the_folder_is_a_beir_collection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, rows = tmp_path / "log.jsonl", []
    held = make_log(0)
    for query, answers in enumerate(held.answers):
        for document, label in answers.items():
            rows += [{"query": held.queries[query], "positive": held.documents[document]}] * int(label)
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    arguments = [str(log), "--queries", "9", "--clusters", "4", "--distractors", "2"]
    assert main(["make-testset", *arguments, "-o", str(tmp_path / "set"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    dataset = load_dataset(f"beir:{tmp_path / 'set'}")
    expected = draw_testset(held, queries=9, clusters=4, distractors=2)
    assert [query.text for query in dataset.queries] == [held.queries[one.query] for one in expected.queries]
    assert [document.text for document in dataset.documents] == [held.documents[row] for row in expected.documents()]
    judged = {(f"q{one.query}", f"d{d}", 1) for one in expected.queries for d in one.positives}
    judged |= {(f"q{one.query}", f"d{d}", 0) for one in expected.queries for d in one.negatives}
    assert {tuple(judgment[:3]) for judgment in dataset.judgments} == judged
    assert said["levels"] == {"low": 3, "middle": 3, "high": 3}
    assert (said["queries"], said["documents"]) == (9, len(dataset.documents))
    assert main(["make-testset", *arguments, "-o", str(tmp_path / "again")]) == 0
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        assert (tmp_path / "set" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    rest = tmp_path / "rest.jsonl"
    assert main(["make-testset", *arguments, "-o", str(tmp_path / "third"), "--train-output", str(rest), "--json"]) == 0
    used = {held.queries[row] for row in (*(one.query for one in expected.queries), *expected.further)}
    assert [json.loads(line) for line in rest.read_text().splitlines()] == [r for r in rows if r["query"] not in used]
    assert set(expected.distractors) <= {d for row in expected.further for d in held.answers[row]}
    with pytest.raises(ArgumentError):
        write_beir(expected.dataset(), tmp_path / "set")


def test_words_of_other_scripts_overlap() -> None:
    assert words("हिन्दी में किताब") & words("किताब पढ़ना") == {"किताब"}
    assert words("図書館") & words("東京の図書館") == {"図書", "書館"}
    found = text_embeddings(["किताब", "हिन्दी किताब", "कलम"])
    assert (found @ found.T).toarray()[0].round(2).tolist() == [1, 0.61, 0]
