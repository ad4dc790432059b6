"""Expanders for BM25, evaluated like learned sparse models: RM3, Query2Doc and docT5query.

Polyakov et al. 2026, section 4.2, compare these expanders. Terms are BM25's stemmed words. BM25 ranks with the expanded
texts; the frequency of a term in a document is its frequency in the original document. To add an expander, write a
class that implements `Expander`, and `register` it.

Letters: b prompts, r samples per prompt, m inputs, n documents of the collection, v stemmed words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Protocol, Self, TypeVar

from scipy.sparse import csr_array

from vocable.core.progress import track
from vocable.data.records import Example
from vocable.data.texts import as_texts
from vocable.encoding.protocol import Role
from vocable.encoding.torch_library import torch_library
from vocable.errors import ArgumentError, ModelError
from vocable.evaluation.retrievers import QueryWeights, unexpanded
from vocable.indexes.bm25 import RM3, BM25Index
from vocable.indexes.word_counts import count_words
from vocable.options import Count, CountOrZero, checked

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

GenerationTask = Literal["causal", "seq2seq"]
GENERATED_BATCH = 64  # samples generated together


class Expander(Protocol):
    """Adds words to texts before BM25 ranks."""

    prefix: ClassVar[str]  # the expander's name; if it ends in ":", a model's name follows
    roles: ClassVar[tuple[Role, ...]]  # roles of the texts that it expands

    @classmethod
    def open(cls, model: str, documents: Sequence[str], device: str | None, ids: Sequence[str] | None) -> Self:
        """Open the expander and index the n documents; `model` follows the prefix in a name, `ids` default to rows."""

    @property
    def index(self) -> BM25Index:
        """Return the index of the n documents."""

    @property
    def vocabulary(self) -> Mapping[str, int]:
        """Return the column of each of the v words: first the words of the index in its order, then other words."""

    def expand(self, texts: Sequence[str]) -> csr_array:
        """Return the word weights of m expanded texts, csr_array [m, v]; new words may extend `vocabulary`."""


BM25 = "bm25"
EXPANDERS: dict[str, type[Expander]] = {}
E = TypeVar("E", bound=type[Expander])


def register(expander: E) -> E:
    """Register an expander under its prefix."""
    EXPANDERS[expander.prefix] = expander
    return expander


def _resolve(name: str) -> tuple[type[Expander] | None, str]:
    """Return the expander with this name, or None, and the name of its model."""
    prefix, colon, model = name.partition(":")
    return EXPANDERS.get(prefix + colon), model


def _expanders() -> str:
    names = [prefix + "MODEL" * prefix.endswith(":") for prefix in EXPANDERS]
    return f"{', '.join(names[:-1])} or {names[-1]}"


def is_lexical(name: str) -> bool:
    """Return whether a name means BM25, alone or with an expander.

    >>> is_lexical("bm25"), is_lexical("bm25+rm3"), is_lexical("vocable-mini")
    (True, True, False)
    """
    return name == BM25 or _resolve(name)[0] is not None


def expander_class(name: str, role: Role = "query") -> type[Expander] | None:
    """Return the expander of a name such as "query2doc:gpt2"; None for the name of a model.

    Raises:
        ArgumentError: the name is "bm25", or the expander does not expand texts of this role.

    >>> expander_class("query2doc:gpt2").__name__, expander_class("vocable-mini")
    ('Query2Doc', None)
    """
    if name == BM25:
        raise ArgumentError(f"bm25 expands nothing: use {_expanders()}")
    expander, _ = _resolve(name)
    if expander is not None and role not in expander.roles:
        message = f"{name} expands documents, not queries: measure it with `role=document`"
        raise ArgumentError(message if role == "query" else f"{name} does not expand texts of the role {role}")
    return expander


def open_expander(name: str, documents: Sequence[str], role: Role = "query", device: str | None = None) -> Expander:
    """Open the expander with this name, and index the n documents.

    The name is "bm25+rm3", "query2doc:MODEL" or "doct5query:MODEL"; MODEL is a folder or a Hub id of a causal or a
    sequence-to-sequence language model. The model runs on `device`, by default on a GPU if the machine has one. `role`
    is the role of the texts to expand: queries, or some of the n documents.

    Raises:
        ArgumentError: there is no such expander, or it does not expand texts of this role.
        ModelError: the model cannot be loaded.
    """
    documents = as_texts(documents, "documents")
    expander = expander_class(name, role)
    if expander is None:
        raise ArgumentError(f"{name!r} is not an expander: use {_expanders()}")
    return expander.open(_resolve(name)[1], documents, device, None)


def lexical_search(name: str, device: str | None = None) -> Callable[..., tuple[BM25Index, QueryWeights]]:
    """Return the `make` of `retrieve_lexically` for "bm25" or the name of an expander."""
    if name == BM25:
        return unexpanded
    kind, model = _resolve(name)
    if kind is None:
        raise ArgumentError(f"{name!r} is not an expander")

    def make(documents: Sequence[str], ids: Sequence[str]) -> tuple[BM25Index, QueryWeights]:
        expander = kind.open(model, documents, device, ids)
        index = expander.index
        if "query" not in expander.roles:
            return index, index.query_vectors
        return index, lambda texts: expander.expand(texts)[:, : len(index.vocabulary)]  # omits words of no document

    return make


@register
class Feedback(RM3):
    """BM25 with queries expanded by words of their first hits (`vocable.indexes.bm25`)."""

    prefix: ClassVar[str] = "bm25+rm3"
    roles: ClassVar[tuple[Role, ...]] = ("query", "document")

    @classmethod
    def open(cls, model: str, documents: Sequence[str], device: str | None, ids: Sequence[str] | None) -> Self:
        """Index the documents."""
        return cls(BM25Index(documents, ids), documents)


INSTRUCTION = "Write a passage that answers the given query:"


@register
class Query2Doc:
    """BM25 with queries expanded by a passage that a causal language model writes for them (Wang et al. 2023).

    The query is repeated `repeats` times before the passage, so that the many words of the passage do not outweigh the
    query. The prompt shows `examples`, queries with their passages; the paper shows four from the training data. A
    passage has at most `new_tokens` tokens. `vocabulary`, {word: column}, begins with the words of the index; new words
    extend it.
    """

    prefix: ClassVar[str] = "query2doc:"
    roles: ClassVar[tuple[Role, ...]] = ("query", "document")

    @classmethod
    def open(cls, model: str, documents: Sequence[str], device: str | None, ids: Sequence[str] | None) -> Self:
        """Load the language model `model` and index the documents."""
        return cls(BM25Index(documents, ids), load_generator(model, "causal", device))

    @checked
    def __init__(
        self,
        index: BM25Index,
        generator: Generator,
        *,
        examples: Sequence[Example] = (),
        repeats: Count = 5,
        new_tokens: Count = 128,
        seed: int = 0,
    ) -> None:
        self.index, self.vocabulary = index, dict(index.vocabulary)
        self._generator, self._examples, self._repeats = generator, tuple(examples), repeats
        self._new_tokens, self._seed = new_tokens, seed

    def expand(self, texts: Sequence[str]) -> csr_array:
        """Count the words of m expanded queries, csr_array [m, v]."""
        texts = as_texts(texts)
        passages = self.passages(texts)
        expanded = [" ".join([text] * self._repeats + [passage]) for text, passage in zip(texts, passages, strict=True)]
        words = self.index.words(expanded)
        for word in (word for text in words for word in text):
            self.vocabulary.setdefault(word, len(self.vocabulary))
        return count_words(words, self.vocabulary)

    def passages(self, texts: Sequence[str]) -> list[str]:
        """Write a passage for each of m queries; "" for a blank query."""
        texts = as_texts(texts)
        prompts = [prompt(text, self._examples) for text in texts if text.strip()]
        written = generate(self._generator, prompts, new_tokens=self._new_tokens, seed=self._seed)
        passages = iter([passage(continuation) for [continuation] in written])
        return [next(passages) if text.strip() else "" for text in texts]


def prompt(query: str, examples: Sequence[Example] = ()) -> str:
    r"""Return the language model's prompt for a query, after examples of queries with their passages.

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
    r"""Return the passage in a prompt's continuation, without further examples that the model may add.

    >>> passage(" A list is a sequence.\n\nQuery: what is a tuple\nPassage: A tuple")
    'A list is a sequence.'
    """
    return continuation.partition("\nQuery:")[0].strip()


TOP_K, DOCUMENT_TOKENS, QUERY_TOKENS = 10, 512, 64  # the paper's; samples are drawn from the TOP_K likeliest tokens


@register
class DocT5Query:
    """BM25 with documents expanded by queries that a model predicts for them (Nogueira and Lin 2019).

    Each document is indexed together with its `samples` predicted queries (the authors index 40). Queries are not
    expanded. `vocabulary` is {word: column} of the index.
    """

    prefix: ClassVar[str] = "doct5query:"
    roles: ClassVar[tuple[Role, ...]] = ("document",)

    @classmethod
    def open(cls, model: str, documents: Sequence[str], device: str | None, ids: Sequence[str] | None) -> Self:
        """Load the sequence-to-sequence model `model`, expand the documents and index them."""
        return cls(documents, load_generator(model, "seq2seq", device), ids=ids)

    @checked
    def __init__(
        self,
        documents: Sequence[str],
        generator: Generator,
        *,
        ids: Sequence[str] | None = None,
        samples: Count = 40,
        seed: int = 0,
    ) -> None:
        documents = as_texts(documents, "documents")
        distinct = [text for text in dict.fromkeys(documents) if text.strip()]
        predicted = generate(
            generator,
            distinct,
            new_tokens=QUERY_TOKENS,
            samples=samples,
            top_k=TOP_K,
            max_length=DOCUMENT_TOKENS,
            seed=seed,
        )
        self._expanded = {text: " ".join([text, *queries]) for text, queries in zip(distinct, predicted, strict=True)}
        self.index = BM25Index([self._expanded.get(text, text) for text in documents], ids)
        self.vocabulary = self.index.vocabulary

    def expand(self, texts: Sequence[str]) -> csr_array:
        """Count the words of m expanded documents, csr_array [m, v]; raise `ArgumentError` for an unindexed text."""
        texts = as_texts(texts)
        unknown = [text for text in texts if text.strip() and text not in self._expanded]
        if unknown:
            raise ArgumentError(f"docT5query expands the documents of its collection, not queries: {unknown[0][:40]!r}")
        return self.index.query_vectors([self._expanded.get(text, text) for text in texts])


class Generator(NamedTuple):
    """A generative model with its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def generator_task(name: str | Path) -> GenerationTask:
    """Read the task of a generative model from its configuration; raise `ModelError` if it has no task."""
    from transformers import AutoConfig

    def open_place(place: str, device: str | None, trust_remote_code: bool) -> GenerationTask:
        config = AutoConfig.from_pretrained(place, trust_remote_code=trust_remote_code)
        return "seq2seq" if config.is_encoder_decoder else "causal"

    return torch_library().open_model(name, open_place)


def load_generator(name: str | Path, task: GenerationTask, device: str | None = None) -> Generator:
    """Load a generative model from safetensors, with the number type of its weights.

    `name` is a folder or a Hub id; a "causal" model continues a text, a "seq2seq" model answers it. `device` is by
    default a GPU if the machine has one.

    Raises:
        ModelError: there is no such model, it has another task, or its weights are not safetensors.
    """
    from sentence_transformers.util import get_device_name
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    loader = AutoModelForCausalLM if task == "causal" else AutoModelForSeq2SeqLM

    def open_place(place: str, device: str | None, trust_remote_code: bool) -> Generator:
        safe = {"trust_remote_code": trust_remote_code}
        config = AutoConfig.from_pretrained(place, **safe)
        # Refuse a wrong model before its weights are loaded; an encoder would generate nonsense in transformers.
        masked = any(architecture.endswith("ForMaskedLM") for architecture in config.architectures or [])
        if masked or config.is_encoder_decoder != (task == "seq2seq"):
            named = ", ".join(config.architectures or []) or config.model_type
            raise ModelError(f"{name} is not a {task} language model (its configuration names {named})")
        model = loader.from_pretrained(place, dtype="auto", use_safetensors=True, **safe)
        tokenizer = AutoTokenizer.from_pretrained(place, **safe)
        if task == "causal":
            tokenizer.padding_side = "left"  # so that the continuation directly follows its prompt
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        return Generator(model.to(device or get_device_name()).eval(), tokenizer)

    return torch_library().open_model(name, open_place, device)


@checked
def generate(
    generator: Generator,
    prompts: Sequence[str],
    *,
    new_tokens: Count,
    samples: Count = 1,
    top_k: CountOrZero = 0,
    max_length: Count | None = None,
    seed: int = 0,
) -> list[list[str]]:
    """Sample r = `samples` continuations of each of b prompts, or answers to them, at temperature 1.

    The same prompts and seed give the same texts on the same machine; the state of torch's global generator does not
    change. A sample has at most `new_tokens` tokens, each drawn from the `top_k` likeliest tokens, or from all tokens
    if `top_k` is 0. Prompts are truncated to `max_length` tokens if it is set.

    Raises:
        ArgumentError: a number is out of its range, or there are more tokens than the model has positions.
    """
    import torch

    model, tokenizer = generator
    cut: dict[str, object] = {"truncation": max_length is not None, "max_length": max_length, "verbose": False}
    lengths = [len(ids) for ids in tokenizer(list(prompts), **cut)["input_ids"]] if prompts else []
    _check_room(model, max(lengths, default=0), new_tokens)
    # The model's configuration defines the tokens that begin and end a text.
    sampling: dict[str, object] = {"do_sample": True, "temperature": 1.0, "top_k": top_k, "top_p": 1.0, "num_beams": 1}
    sampling |= {"max_new_tokens": new_tokens, "max_length": None, "num_return_sequences": samples}
    order = sorted(range(len(prompts)), key=lambda row: -lengths[row])  # longest first: little padding in a batch
    size = max(1, GENERATED_BATCH // samples)
    written: list[list[str]] = [[] for _ in prompts]
    with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []), torch.inference_mode():
        torch.manual_seed(seed)
        for first in track(range(0, len(order), size), "generate"):
            rows = order[first : first + size]
            batch = tokenizer([prompts[row] for row in rows], padding=True, return_tensors="pt", **cut)
            inputs = {name: batch[name].to(model.device) for name in ("input_ids", "attention_mask")}
            ids = model.generate(**inputs, **sampling, pad_token_id=tokenizer.pad_token_id)
            start = 0 if model.config.is_encoder_decoder else inputs["input_ids"].shape[1]
            texts = tokenizer.batch_decode(ids[:, start:], skip_special_tokens=True)
            for position, row in enumerate(rows):
                written[row] = [text.strip() for text in texts[position * samples : (position + 1) * samples]]
    return written


def _check_room(model: PreTrainedModel, longest: int, new_tokens: int) -> None:
    """Raise `ArgumentError` if prompts and new tokens exceed the positions of a model with absolute positions."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    needed = max(longest, new_tokens) if model.config.is_encoder_decoder else longest + new_tokens
    if positions is not None and needed > positions:
        raise ArgumentError(
            f"the longest prompt has {longest} tokens; with {new_tokens} new tokens it exceeds the model's "
            f"{positions} positions"
        )
