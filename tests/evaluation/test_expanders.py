from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.utils import logging as transformers_logging

from tests.evaluation.conftest import POSITIONS, UNHEARD_OF
from tests.evaluation.rankings import index_ranking
from vocable.cli import main
from vocable.data import Document, Qrel, Query
from vocable.data.records import Example
from vocable.encoding.protocol import Role
from vocable.errors import ArgumentError, ModelError
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.evaluate import evaluate
from vocable.evaluation.expanders import (
    DOCUMENT_TOKENS,
    QUERY_TOKENS,
    TOP_K,
    DocT5Query,
    Expander,
    GenerationTask,
    Generator,
    Query2Doc,
    generate,
    lexical_search,
    load_generator,
    open_expander,
    prompt,
)
from vocable.evaluation.retrievers import lexical_index
from vocable.indexes.bm25 import RM3, BM25Index
from vocable.wackiness.expansions import expansion_data
from vocable.wackiness.score import wackiness

DOCUMENTS = [
    "cats sleep and purr",
    "cats purr",
    "dogs bark at cats, dogs bark",
    "owls hoot",
    "owls hoot at dogs in the night",
    "foxes bark",
]
QUERIES = ["sleeping cat", "dogs", "zebra", ""]


def reference(expander: Expander, texts: list[str], documents: list[str], k: int) -> dict[str, float]:
    """The Wackiness Score of every expansion, word by word."""
    vectors, names, index = expander.expand(texts), list(expander.vocabulary), expander.index
    counts = [Counter(words) for words in index.words(documents)]
    importance: dict[str, list[float]] = {}
    for row, own in enumerate(index.words(texts)):
        weights = dict(zip(names, vectors[[row]].toarray()[0], strict=True))
        scores = index.get() @ np.array([weights[name] for name in index.vocabulary])
        found = [int(i) for i in np.argsort(-scores, kind="stable")[:k] if scores[i] > 0]
        for name in [name for name in names if weights[name] and name not in own]:
            having = sum(name in one for one in counts)
            idf = np.log(len(documents) / having) if having else 0.0
            importance.setdefault(name, []).append(idf * sum(counts[i][name] for i in found))
    means = {name: float(np.mean(values)) for name, values in importance.items()}
    least, most = min(means.values()), max(means.values())
    return {name: 1 - (mean - least) / (most - least) for name, mean in means.items()}


def test_feedback_is_measured() -> None:
    expander = open_expander("bm25+rm3", DOCUMENTS)
    measured = expansion_data(expander, QUERIES, DOCUMENTS, 3, name="RM3")
    assert measured.name == "RM3"
    assert measured.rows.shape == (4, 3)
    assert (measured.vectors != RM3(BM25Index(DOCUMENTS), DOCUMENTS).expand(QUERIES)).nnz == 0
    found = wackiness(measured.vectors, measured.input_counts, measured.rows, measured.counts)
    scores = {name: score for name, score in zip(measured.terms, found.scores, strict=True) if not np.isnan(score)}
    assert scores == pytest.approx(reference(expander, QUERIES, DOCUMENTS, 3))
    # "sleep" is the first query's own; every other word of what the two find expands one of them.
    assert set(scores) == {"purr", "dog", "bark", "cat", "owl", "hoot", "night"}
    assert [surface.text for surface in measured.surfaces] == list(measured.terms)


def test_a_written_passage_is_measured_also_in_words_that_no_document_has(causal: Path, toy_texts: list[str]) -> None:
    documents = toy_texts[:20]
    expander = Query2Doc(BM25Index(documents), load_generator(causal, "causal"), new_tokens=60)
    queries = ["old fox", "zebra books", *toy_texts[:4]]
    measured = expansion_data(expander, queries, documents, 5)
    found = wackiness(measured.vectors, measured.input_counts, measured.rows, measured.counts)
    scores = {name: score for name, score in zip(measured.terms, found.scores, strict=True) if not np.isnan(score)}
    assert scores == pytest.approx(reference(expander, queries, documents, 5))
    unheard_of = set(scores) - set(expander.index.vocabulary)
    assert unheard_of
    assert {scores[name] for name in unheard_of} == {1.0}
    assert "zebra" in measured.terms  # of the query itself: no expansion, though no document has it
    assert "zebra" not in scores


def test_documents_that_are_expanded_do_not_retrieve_themselves(seq2seq: Path, toy_texts: list[str]) -> None:
    documents = sorted(set(toy_texts))[:8]
    expander = DocT5Query(documents, load_generator(seq2seq, "seq2seq"), samples=2)
    rows = np.array([5, 2])
    texts = [documents[row] for row in rows]
    measured = expansion_data(expander, texts, documents, 3, itself=rows)
    everything = expander.index.search(expander.expand(texts), 8).rows
    assert [row in found for row, found in zip(rows, everything, strict=True)] == [True, True]
    for row, found, others in zip(rows, everything, measured.rows, strict=True):
        assert others.tolist() == [other for other in found if other != row][:3]
    # Words are counted in the documents as they were, not in the queries that were guessed for them.
    assert measured.counts.sum() == sum(map(len, expander.index.words(documents)))
    assert measured.input_counts.sum() == sum(map(len, expander.index.words(texts)))
    assert measured.vectors.sum() > measured.input_counts.sum()


def test_expanders_are_chosen_by_name(causal: Path, seq2seq: Path) -> None:
    assert isinstance(open_expander(f"query2doc:{causal}", DOCUMENTS), Query2Doc)
    assert isinstance(open_expander(f"doct5query:{seq2seq}", DOCUMENTS[:2], "document"), DocT5Query)
    for name, message in (("gpt2", "'gpt2' is not an expander"), ("bm25", "bm25 expands nothing")):
        choices = re.escape("use bm25+rm3, query2doc:MODEL or doct5query:MODEL")
        with pytest.raises(ArgumentError, match=f"{message}: {choices}"):
            open_expander(name, DOCUMENTS)
    with pytest.raises(ArgumentError):
        open_expander("doct5query:/no/such/folder", DOCUMENTS)
    with pytest.raises(ModelError):
        open_expander("query2doc:/no/such/folder", DOCUMENTS)
    with pytest.raises(ArgumentError):
        expansion_data(open_expander("bm25+rm3", DOCUMENTS), QUERIES, DOCUMENTS, 0)


@pytest.mark.slow
def test_expanders_are_searched_as_systems(causal: Path, seq2seq: Path, toy_texts: list[str]) -> None:
    texts, asked = sorted(set(toy_texts))[:6], ["old fox", "lazy dog"]
    documents = [Document(f"d{i}", text) for i, text in enumerate(texts)]
    queries = [Query(f"q{i}", text) for i, text in enumerate(asked)]
    dataset = Dataset("toy", documents, queries, [Qrel(query.id, "d0", 1) for query in queries])
    ids = [document.id for document in documents]
    for name in (f"query2doc:{causal}", f"doct5query:{seq2seq}"):
        role: Role = "query" if name.startswith("query2doc") else "document"
        expander = open_expander(name, texts, role)
        weights = expander.expand(asked) if role == "query" else expander.index.query_vectors(asked)
        scores = weights[:, : len(expander.index.vocabulary)] @ expander.index.get().T
        ranking = index_ranking(lexical_index(dataset, make=lexical_search(name)), dataset, k=6)
        for row, query in enumerate(scores.toarray()):
            hits = dict(ranking.hits(row))
            assert hits == pytest.approx({ids[i]: query[i] for i in np.flatnonzero(query)}, rel=1e-5)
        [one] = evaluate([name], dataset, ["nDCG@10"]).evaluations
        assert one.name == f"{name.partition(':')[0]}:{Path(name).name}"


@pytest.mark.slow
def test_the_command_evaluate_takes_expanders(
    capsys: pytest.CaptureFixture[str], causal: Path, seq2seq: Path, toy_texts: list[str], tmp_path: Path
) -> None:
    documents, queries = sorted(set(toy_texts))[:3], ["old fox", "lazy dog at night", "books"]
    for name, texts in (("corpus", documents), ("queries", queries)):
        rows = ({"_id": f"{name}{i}", "text": text} for i, text in enumerate(texts))
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    common = ["--corpus", str(tmp_path / "corpus.jsonl"), "--bootstrap", "0", "--json"]
    asked = [f"query2doc:{causal}", "bm25+rm3", "--queries", str(tmp_path / "queries.jsonl")]
    transformers_logging.disable_progress_bar()  # imported before the command line could silence it
    found: list[dict[str, Any]] = []
    for number, arguments in enumerate([asked, [f"doct5query:{seq2seq}", "--role", "document"]]):
        capsys.readouterr()
        assert main(["measure-wackiness", *arguments, *common, "-o", str(tmp_path / str(number))]) == 0
        found += json.loads(capsys.readouterr().out)["models"]
    assert [model["name"] for model in found] == [f"query2doc:{causal}", "bm25+rm3", f"doct5query:{seq2seq}"]
    for model in found:
        assert model["scored_terms"] > 0
        assert model["expansions"] > 0
        assert 0 <= model["w_auc"] <= 1
    line = "vocable: doct5query:x expands documents, not queries: measure it with --role document\n"
    late = ["/no/such/model", "doct5query:x"]  # refused before the model before it is looked at
    assert main(["measure-wackiness", *late, *asked[2:], *common, "-o", str(tmp_path / "refused")]) == 2
    assert capsys.readouterr().err == line
    assert not list(tmp_path.glob("refused*"))


GUESSED = ["The old fox reads books .", "", "A librarian indexes posting lists", "The old fox reads books ."]


def test_the_document_and_its_queries(seq2seq: Path) -> None:
    generator = load_generator(seq2seq, "seq2seq")
    expander = DocT5Query(GUESSED, generator, samples=3, seed=7)
    asked = [GUESSED[0], GUESSED[2]]
    guessed = generate(
        generator, asked, samples=3, new_tokens=QUERY_TOKENS, top_k=TOP_K, max_length=DOCUMENT_TOKENS, seed=7
    )
    expanded = [" ".join([GUESSED[0], *guessed[0]]), "", " ".join([GUESSED[2], *guessed[1]])]
    assert len(set(guessed[0])) == 3
    # The index has the documents with their queries, and so has what is expanded.
    plain = BM25Index([*expanded, expanded[0]])
    assert expander.vocabulary == plain.vocabulary
    queries = ["fox", "librarian lists", guessed[1][0]]
    one, other = expander.index.search(queries, 4), plain.search(queries, 4)
    np.testing.assert_array_equal(one.rows, other.rows)
    np.testing.assert_array_equal(one.scores, other.scores)
    vectors = expander.expand([GUESSED[2], ""])
    found = {word: vectors[0, column] for word, column in expander.vocabulary.items() if vectors[0, column]}
    assert found == Counter(plain.words([expanded[2]])[0])
    assert vectors[[1]].nnz == 0


def test_doct5query_refuses_other_texts_and_zero_samples(seq2seq: Path) -> None:
    generator = load_generator(seq2seq, "seq2seq")
    expander = DocT5Query(GUESSED[2:3], generator, samples=1)
    with pytest.raises(ArgumentError, match=r"docT5query .*'fox'"):
        expander.expand(["fox"])
    with pytest.raises(ArgumentError):
        DocT5Query(GUESSED, generator, samples=0)
    assert DocT5Query([], generator).vocabulary == {}


WRITTEN = ["old fox", "", "librarian reads zebra books", "old fox"]


def test_query2doc_repeats_the_query_before_the_written_passage(causal: Path, toy_texts: list[str]) -> None:
    index, generator = BM25Index(toy_texts), load_generator(causal, "causal")
    before = dict(index.vocabulary)
    expander = Query2Doc(index, generator, repeats=3, new_tokens=60, seed=4)
    vectors = expander.expand(WRITTEN)
    written = generate(generator, [prompt(query) for query in WRITTEN if query], new_tokens=60, seed=4)
    passages = [written[0][0], "", written[1][0], written[2][0]]
    assert expander.passages(WRITTEN) == passages
    assert passages[0] != passages[3]  # sampled apart, though the query is the same
    for row, (query, passage) in enumerate(zip(WRITTEN, passages, strict=True)):
        expected = Counter(3 * index.words([query])[0] + index.words([passage])[0])
        found = {word: vectors[row, column] for word, column in expander.vocabulary.items() if vectors[row, column]}
        assert found == expected
    # What no document has comes after the words of the index, which stays as it is.
    assert index.vocabulary == before
    assert dict(list(expander.vocabulary.items())[: len(before)]) == before
    added = set(expander.vocabulary) - set(before)
    assert "zebra" in added
    assert added & set(index.words([" ".join(UNHEARD_OF)])[0])
    assert vectors.shape == (4, len(expander.vocabulary))


def test_words_keep_their_columns(causal: Path, toy_texts: list[str]) -> None:
    expander = Query2Doc(BM25Index(toy_texts), load_generator(causal, "causal"), new_tokens=10)
    expander.expand(["zebra crossing"])
    before = dict(expander.vocabulary)
    expander.expand(["aardvark zebra"])
    assert before.items() <= expander.vocabulary.items()
    assert "aardvark" in expander.vocabulary


def test_examples_are_shown(causal: Path, toy_texts: list[str]) -> None:
    index, generator = BM25Index(toy_texts), load_generator(causal, "causal")
    examples = [Example("lazy dog", "Every compiler jumped over the lazy dog"), Example("books", "posting lists")]
    [passage] = Query2Doc(index, generator, examples=examples, new_tokens=10).passages(["old fox"])
    assert [[passage]] == generate(generator, [prompt("old fox", examples)], new_tokens=10)
    assert [passage] != Query2Doc(index, generator, new_tokens=10).passages(["old fox"])


def test_query2doc_without_repeats_or_room_is_refused(causal: Path, toy_texts: list[str]) -> None:
    index, generator = BM25Index(toy_texts), load_generator(causal, "causal")
    with pytest.raises(ArgumentError):
        Query2Doc(index, generator, repeats=0)
    with pytest.raises(ArgumentError):
        Query2Doc(index, generator, new_tokens=POSITIONS).expand(["old fox"])  # no room is left for a prompt


PROMPTS = ["The old fox reads books", "A librarian", "Every compiler forgets twelve queries at night . See chapter 7"]


def greedy(generator: Generator, prompt: str, new_tokens: int) -> str:
    """Greedy decoding by hand, one forward pass a token, without a cache."""
    model, tokenizer = generator
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    written = [model.config.decoder_start_token_id] if model.config.is_encoder_decoder else []
    for _ in range(new_tokens):
        with torch.inference_mode():
            if model.config.is_encoder_decoder:
                logits = model(input_ids=ids, decoder_input_ids=torch.tensor([written])).logits
            else:
                logits = model(input_ids=torch.cat([ids, torch.tensor([written], dtype=torch.int64)], dim=1)).logits
        written.append(int(logits[0, -1].argmax()))
        if written[-1] == tokenizer.eos_token_id:
            break
    return str(tokenizer.decode(written, skip_special_tokens=True)).strip()


@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
def test_only_the_likeliest_token_is_greedy_decoding(kind: GenerationTask, request: pytest.FixtureRequest) -> None:
    # Prompts of several lengths in one batch: padding must not change what is written.
    generator = load_generator(request.getfixturevalue(kind), kind)
    written = generate(generator, PROMPTS, new_tokens=12, samples=2, top_k=1)
    expected = [greedy(generator, prompt, 12) for prompt in PROMPTS]
    assert written == [[text, text] for text in expected]
    assert len(set(expected)) == 3  # the prompts matter


@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
def test_the_seed_decides(kind: GenerationTask, request: pytest.FixtureRequest) -> None:
    generator = load_generator(request.getfixturevalue(kind), kind)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one, again, other = (generate(generator, PROMPTS, new_tokens=8, samples=3, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one != other
    assert torch.rand(1) == expected  # the caller's random numbers are where they were
    assert [len(set(texts)) for texts in one] == [3, 3, 3]


def test_many_prompts_are_written_in_batches(causal: Path) -> None:
    generator = load_generator(causal, "causal")
    prompts = [" ".join(["fox"] * (1 + i % 7)) for i in range(9)]
    written = generate(generator, prompts, new_tokens=3, samples=20, top_k=1)
    assert [texts[0] for texts in written] == [greedy(generator, prompt, 3) for prompt in prompts]


def test_sampled_as_often_as_the_model_says(causal: Path) -> None:
    generator = load_generator(causal, "causal")
    model, tokenizer = generator
    with torch.inference_mode():
        logits = model(**tokenizer(PROMPTS[1], return_tensors="pt")).logits[0, -1]
    likeliest = logits.topk(4).indices
    shares = logits[likeliest].softmax(0)
    [texts] = generate(generator, PROMPTS[1:2], new_tokens=1, samples=4000, top_k=4)
    names = [str(tokenizer.decode([token], skip_special_tokens=True)).strip() for token in likeliest.tolist()]
    assert set(texts) <= set(names)
    for name, share in zip(names, shares.tolist(), strict=True):
        assert texts.count(name) / 4000 == pytest.approx(share, abs=0.04)  # five standard deviations


def test_long_prompts_are_cut_where_that_is_asked_for(seq2seq: Path) -> None:
    generator = load_generator(seq2seq, "seq2seq")
    whole, cut = (
        generate(generator, [prompt], new_tokens=8, top_k=1, max_length=4) for prompt in (PROMPTS[0], "The old fox")
    )
    assert whole == cut  # three words and the end
    assert whole != generate(generator, PROMPTS[:1], new_tokens=8, top_k=1)


def test_no_prompts_generate_nothing(causal: Path) -> None:
    assert generate(load_generator(causal, "causal"), [], new_tokens=5) == []


def test_what_does_not_fit_is_refused(causal: Path, seq2seq: Path) -> None:
    generator, long = load_generator(causal, "causal"), " ".join(["fox"] * 100)
    [[text]] = generate(generator, [long], new_tokens=POSITIONS - 100, top_k=1)
    assert text
    message = "the longest prompt has 100 tokens; with 61 new tokens it exceeds the model's 160 positions"
    with pytest.raises(ArgumentError, match=message):
        generate(generator, [long], new_tokens=POSITIONS - 99)
    # T5 counts relative positions: there is no end of them.
    assert generate(load_generator(seq2seq, "seq2seq"), [long], new_tokens=29, top_k=1)
    for new_tokens, samples, top_k in ((0, 1, 0), (1, 0, 0), (1, 1, -1)):
        with pytest.raises(ArgumentError):
            generate(generator, PROMPTS, new_tokens=new_tokens, samples=samples, top_k=top_k)


def test_another_kind_of_model_is_refused(causal: Path, seq2seq: Path, backbones: dict[str, Path]) -> None:
    with pytest.raises(ModelError, match=r"seq2seq .*GPT2LMHeadModel"):
        load_generator(causal, "seq2seq")
    with pytest.raises(ModelError, match=r"causal .*T5ForConditionalGeneration"):
        load_generator(seq2seq, "causal")
    with pytest.raises(ModelError):
        load_generator(backbones["bert"], "causal")
    with pytest.raises(ModelError):
        load_generator("/no/such/folder", "causal")


def test_a_model_without_all_of_its_weights_is_refused(causal: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(causal, tmp_path / "gpt2")
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: weights[name] for name in weights if "h.1.mlp" not in name},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(ModelError, match=r"transformer\.h\.1\.mlp"):
        load_generator(folder, "causal")


def test_pickled_weights_are_refused(causal: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(causal, tmp_path / "gpt2")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError):
        load_generator(folder, "causal")
