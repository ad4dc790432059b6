"""Expanders around BM25, measured as learned sparse models are: RM3, Query2Doc and docT5query ("Understanding Wacky
Weights: A Dissection of SPLADE's Learned Term Importance", section 4.2).

Terms are BM25's stemmed words. The ranking is BM25's with the expanded inputs; what stands in a document is counted in
the document as it was before anything expanded it.

Letters: m inputs, n documents of the collection, v stemmed words, k retrieved documents.

Texts that a generative model writes: what Query2Doc and docT5query expand with.

Letters: b prompts, r samples of each.

Query2Doc: a query is expanded with the passage that a language model writes for it ("Query2doc: Query Expansion with
Large Language Models", Wang et al. 2023).

The query stands `repeats` times before the passage, so that BM25 does not drown it in the passage's many words.

Letters: m queries, v stemmed words.

docT5query: a document is expanded with the queries that a model guesses for it ("From doc2query to docTTTTTquery",
Nogueira and Lin 2019).

The queries are appended to the document before it is indexed, so that the documents are what is expanded: a query is
searched as it is.

Letters: m documents of the n of the collection, v stemmed words.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError
from scipy.sparse import csr_array
from sentence_transformers.util import get_device_name
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from vocable.analysis.expansion_data import Measured, word_surfaces
from vocable.data.schemas import Example
from vocable.encoder.load import locate
from vocable.encoder.roles import Role
from vocable.errors import ArgumentError, ModelError, check_texts
from vocable.evaluation.wackiness import check_depth, without_itself
from vocable.search.bm25 import RM3, BM25Index, count_words

Kind = Literal["causal", "seq2seq"]
LOADERS = {"causal": AutoModelForCausalLM, "seq2seq": AutoModelForSeq2SeqLM}
BATCH = 64  # texts written at a time


class Generator(NamedTuple):
    """A model that writes, with its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def load_generator(name: str | Path, kind: Kind, *, device: str | None = None) -> Generator:
    """Load a generative model in its own number type, from safetensors, without code of its own.

    Args:
        name: a folder or a Hub id.
        kind: "causal" continues a text, "seq2seq" answers one.
        device: where to put it; by default a GPU if there is one.

    Raises:
        ModelError: nothing is there, it is of another kind, or its weights are not safetensors.
    """
    place, safe = locate(name), {"trust_remote_code": False}
    options = {"dtype": "auto", "use_safetensors": True, "output_loading_info": True}
    try:
        _check_kind(name, AutoConfig.from_pretrained(place, **safe), kind)
        model, loading = LOADERS[kind].from_pretrained(place, **options, **safe)
        tokenizer = AutoTokenizer.from_pretrained(place, **safe)
    except (OSError, ValueError, HFValidationError, SafetensorError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(f"{name}: no {kind} language model could be read here ({reason})") from error
    if loading["missing_keys"]:  # the host library makes them up, at random
        missing = ", ".join(sorted(loading["missing_keys"])[:3])
        raise ModelError(f"{name} is no {kind} language model, or not all of one (no {missing})")
    if kind == "causal":
        tokenizer.padding_side = "left"  # a continuation begins where its prompt ends
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return Generator(model.to(device or get_device_name()).eval(), tokenizer)


def _check_kind(name: str | Path, config: PreTrainedConfig, kind: Kind) -> None:
    """Refuse at once what would be refused slowly, and encoders, which the host library would let write nonsense."""
    architectures = config.architectures or []
    masked = any(architecture.endswith("ForMaskedLM") for architecture in architectures)
    if masked or config.is_encoder_decoder != (kind == "seq2seq"):
        found = ", ".join(architectures) or config.model_type
        raise ModelError(f"{name} is no {kind} language model (its configuration names {found})")


def generate(
    generator: Generator,
    prompts: Sequence[str],
    *,
    new_tokens: int,
    samples: int = 1,
    top_k: int = 0,
    max_length: int | None = None,
    seed: int = 0,
    advance: Callable[[int], object] = lambda done: None,
) -> list[list[str]]:
    """Sample continuations of b prompts, or answers to them, at temperature 1.

    The same prompts with the same seed give the same texts on the same machine; torch's own random numbers stay as
    they were.

    Args:
        generator: from `load_generator`.
        prompts: b texts.
        new_tokens: of a sample, at most.
        samples: r of each prompt.
        top_k: sample from so many of the likeliest tokens, from all of them if it is 0.
        max_length: tokens of a prompt, longer ones are cut; by default none is.
        seed: of the sampling.
        advance: called with the number of prompts done after every batch.

    Returns:
        r texts for each of the b prompts.

    Raises:
        ArgumentError: a number out of its range, or more tokens than the model has positions for.
    """
    if min(new_tokens, samples) < 1 or top_k < 0:
        message = "new_tokens and samples must be at least 1 and top_k not negative"
        raise ArgumentError(f"{message}, not {new_tokens}, {samples} and {top_k}")
    model, tokenizer = generator
    cut: dict[str, Any] = {"truncation": max_length is not None, "max_length": max_length, "verbose": False}
    lengths = [len(ids) for ids in tokenizer(list(prompts), **cut)["input_ids"]] if prompts else []
    _check_room(model, max(lengths, default=0), new_tokens)
    settings = _settings(generator, new_tokens, samples, top_k)
    written: list[list[str]] = [[] for _ in prompts]
    with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []), torch.inference_mode():
        torch.manual_seed(seed)
        for rows in _batches(lengths, max(1, BATCH // samples)):
            batch = tokenizer([prompts[row] for row in rows], padding=True, return_tensors="pt", **cut)
            inputs = {name: batch[name].to(model.device) for name in ("input_ids", "attention_mask")}
            ids = model.generate(**inputs, generation_config=settings)
            start = 0 if model.config.is_encoder_decoder else inputs["input_ids"].shape[1]
            texts = tokenizer.batch_decode(ids[:, start:], skip_special_tokens=True)
            for place, row in enumerate(rows):
                written[row] = [text.strip() for text in texts[place * samples : (place + 1) * samples]]
            advance(len(rows))
    return written


def _settings(generator: Generator, new_tokens: int, samples: int, top_k: int) -> GenerationConfig:
    """The model's own settings (which tokens begin and end a text), but for how it samples."""
    settings = copy.deepcopy(generator.model.generation_config)
    settings.update(do_sample=True, temperature=1.0, top_k=top_k, top_p=1.0, num_beams=1)
    settings.update(max_new_tokens=new_tokens, max_length=None, num_return_sequences=samples)
    settings.update(pad_token_id=generator.tokenizer.pad_token_id)
    return settings


def _check_room(model: PreTrainedModel, longest: int, new_tokens: int) -> None:
    """Raise `ArgumentError` if prompts and answers do not fit the model's positions, where it has an end of them."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    needed = max(longest, new_tokens) if model.config.is_encoder_decoder else longest + new_tokens
    if positions is not None and needed > positions:
        raise ArgumentError(
            f"the longest prompt has {longest} tokens and {new_tokens} are to be written: "
            f"more than the model's {positions} positions"
        )


def _batches(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """The rows, longest prompt first, so that a batch has little padding."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    for start in range(0, len(order), size):
        yield order[start : start + size]


INSTRUCTION = "Write a passage that answers the given query:"


class Query2Doc:
    """BM25 whose queries are expanded by a causal language model; `index` searches what `expand` gives.

    `vocabulary` is that of the index, {word: column}, and grows by the words that are written and no document has.
    """

    def __init__(
        self,
        index: BM25Index,
        generator: Generator,
        *,
        examples: Sequence[Example] = (),
        repeats: int = 5,
        new_tokens: int = 128,
        seed: int = 0,
    ) -> None:
        """Expand with what `generator` (from `load_generator`, "causal") writes.

        Args:
            index: of the collection.
            generator: from `load_generator`, causal.
            examples: queries with their passages, which the prompt shows; the paper shows four of the training data.
                Without any the prompt is the instruction and the query.
            repeats: how often the query stands in front of the passage.
            new_tokens: of a passage, at most.
            seed: of the sampling.

        Raises:
            ArgumentError: the query is to be left out.
        """
        if repeats < 1:
            raise ArgumentError(f"repeats must be at least 1, not {repeats}")
        self.index, self.vocabulary = index, dict(index.vocabulary)
        self._generator, self._examples, self._repeats = generator, tuple(examples), repeats
        self._new_tokens, self._seed = new_tokens, seed

    def expand(self, texts: Sequence[str], advance: Callable[[int], object] = lambda done: None) -> csr_array:
        """How often each word stands in each of m expanded queries, csr_array [m, v].

        `advance` is called with the number of queries done after every batch.
        """
        passages = self.passages(texts, advance)
        expanded = [" ".join([text] * self._repeats + [passage]) for text, passage in zip(texts, passages, strict=True)]
        words = self.index.words(expanded)
        for word in (word for text in words for word in text):
            self.vocabulary.setdefault(word, len(self.vocabulary))
        return count_words(words, self.vocabulary)

    def passages(self, texts: Sequence[str], advance: Callable[[int], object] = lambda done: None) -> list[str]:
        """The passage that is written for each of m queries; none for a query without a letter."""
        check_texts(texts)
        asked = [text for text in texts if text.strip()]
        prompts = [prompt(text, self._examples) for text in asked]
        new, seed = self._new_tokens, self._seed
        written = generate(self._generator, prompts, new_tokens=new, seed=seed, advance=advance)
        passages = iter([passage(continuation) for [continuation] in written])
        return [next(passages) if text.strip() else "" for text in texts]


def prompt(query: str, examples: Sequence[Example] = ()) -> str:
    r"""What the language model is given for a query, with examples of queries and their passages before it.

    >>> print(prompt("what is a list", [Example("what is a set", "A set has no duplicates.")]))
    Write a passage that answers the given query:
    <BLANKLINE>
    Query: what is a set
    Passage: A set has no duplicates.
    <BLANKLINE>
    Query: what is a list
    Passage:
    """
    shown = [f"Query: {example.query}\nPassage: {example.positive}" for example in examples]
    return "\n\n".join([INSTRUCTION, *shown, f"Query: {query}\nPassage:"])


def passage(continuation: str) -> str:
    r"""What of a prompt's continuation is the passage: a model that was shown examples may go on with another one.

    >>> passage(" A list is a sequence.\n\nQuery: what is a tuple\nPassage: A tuple")
    'A list is a sequence.'
    """
    return continuation.partition("\nQuery:")[0].strip()


TOP_K, LONGEST, NEW_TOKENS = 10, 512, 64  # of the paper: tokens to sample from, of a document, of a query


class DocT5Query:
    """BM25 whose documents are expanded by a sequence-to-sequence model; `index` has them, expanded.

    `vocabulary` is that of the index, {word: column}.
    """

    def __init__(
        self,
        documents: Sequence[str],
        generator: Generator,
        *,
        samples: int = 40,
        seed: int = 0,
        advance: Callable[[int], object] = lambda done: None,
    ) -> None:
        """Guess queries for n documents, and index both.

        Args:
            documents: the texts of the collection.
            generator: from `load_generator`, seq2seq.
            samples: queries of a document; the authors index 40.
            seed: of the sampling.
            advance: called with the number of documents done after every batch.

        Raises:
            ArgumentError: `samples` is below 1.
        """
        check_texts(documents, "documents")
        distinct = [text for text in dict.fromkeys(documents) if text.strip()]
        options = {"new_tokens": NEW_TOKENS, "top_k": TOP_K, "max_length": LONGEST, "seed": seed}
        guessed = generate(generator, distinct, samples=samples, advance=advance, **options)
        self._expanded = {text: " ".join([text, *queries]) for text, queries in zip(distinct, guessed, strict=True)}
        self.index = BM25Index([self._expanded.get(text, text) for text in documents])
        self.vocabulary = self.index.vocabulary

    def expand(self, texts: Sequence[str], advance: Callable[[int], object] = lambda done: None) -> csr_array:
        """How often each word stands in each of m expanded documents, csr_array [m, v].

        `advance` is called with the number of documents done.

        Raises:
            ArgumentError: a text is not one of the documents.
        """
        check_texts(texts)
        unknown = [text for text in texts if text.strip() and text not in self._expanded]
        if unknown:
            raise ArgumentError(f"docT5query expands the documents of its collection, not queries: {unknown[0][:40]!r}")
        vectors = self.index.query_vectors([self._expanded.get(text, text) for text in texts])
        advance(len(texts))
        return vectors


RM3_NAME, QUERY2DOC, DOCT5QUERY = "bm25+rm3", "query2doc:", "doct5query:"
Advance = Callable[[int], object]


class Expander(Protocol):
    """What adds words to texts before BM25 sees them."""

    @property
    def index(self) -> BM25Index:
        """The n documents."""

    @property
    def vocabulary(self) -> Mapping[str, int]:
        """The column of each of the v words: those of the index first, in its order."""

    def expand(self, texts: Sequence[str], advance: Advance = ...) -> csr_array:
        """The weights of the words of m expanded texts, csr_array [m, v]; `vocabulary` may grow by what is written.

        `advance` is called with the number of texts done.
        """


def is_expander(name: str) -> bool:
    """Whether a name is one that `open_expander` knows, and not a model's.

    >>> is_expander("bm25+rm3"), is_expander("query2doc:gpt2"), is_expander("vocable-mini")
    (True, True, False)
    """
    return name == RM3_NAME or name.startswith((QUERY2DOC, DOCT5QUERY))


def check_expands(name: str, role: Role) -> None:
    """Refuse an expander that does not expand texts of this role, before any work.

    Raises:
        ArgumentError: it expands documents and not queries.
    """
    if name.startswith(DOCT5QUERY) and role == "query":
        raise ArgumentError(f"{name} expands documents, not queries: measure it with --role document")


def open_expander(
    name: str, documents: Sequence[str], role: Role = "query", *, advance: Advance = lambda done: None
) -> Expander:
    """The expander of a name, with its index of the documents.

    Args:
        name: "bm25+rm3", "query2doc:MODEL" or "doct5query:MODEL"; MODEL is a folder or a Hub id of a causal language
            model, or of one from sequence to sequence.
        documents: n texts.
        role: what is to be expanded: queries, or documents of the n.
        advance: called with the number of documents done, where a model expands them.

    Raises:
        ArgumentError: no such expander, or one that does not expand queries.
        ModelError: the model cannot be loaded.
    """
    check_texts(documents, "documents")
    check_expands(name, role)
    if name == RM3_NAME:
        return RM3(BM25Index(documents), documents)
    if name.startswith(QUERY2DOC):
        generator = load_generator(name.removeprefix(QUERY2DOC), "causal")
        return Query2Doc(BM25Index(documents), generator)
    if name.startswith(DOCT5QUERY):
        return DocT5Query(documents, load_generator(name.removeprefix(DOCT5QUERY), "seq2seq"), advance=advance)
    raise ArgumentError(f"{name!r} is not an expander: choose {RM3_NAME}, {QUERY2DOC}MODEL or {DOCT5QUERY}MODEL")


def measured_expander(
    name: str,
    expander: Expander,
    texts: Sequence[str],
    documents: Sequence[str],
    k: int = 100,
    *,
    itself: np.ndarray | None = None,
    advance: Advance = lambda done: None,
) -> Measured:
    """Expand m texts and search with them.

    Args:
        name: as it is to be called.
        expander: from `open_expander`.
        texts: the inputs.
        documents: the n texts that the expander was made with.
        k: documents that an input retrieves.
        itself: [m], for inputs that are documents of the collection, the row of each, as in `measured_vectors`.
        advance: called with the number of texts done.

    Raises:
        ArgumentError: k below 1, or texts that the expander cannot expand.
    """
    check_texts(texts)
    check_texts(documents, "documents")
    check_depth(k)
    index, vectors = expander.index, expander.expand(texts, advance)
    vocabulary = expander.vocabulary
    own, counts = (count_words(index.words(part), vocabulary) for part in (texts, documents))
    searched = vectors[:, : len(index.vocabulary)]  # no document has the words that follow
    rows = index.search(searched, k if itself is None else k + 1).rows
    if itself is not None:
        rows = without_itself(rows, itself)
    names = list(vocabulary)
    return Measured(name, vectors, own, rows, counts, word_surfaces(names), names)
