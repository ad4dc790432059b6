"""Query2Doc: a query is expanded with the passage that a language model writes for it ("Query2doc: Query Expansion with
Large Language Models", Wang et al. 2023).

The query stands `repeats` times before the passage, so that BM25 does not drown it in the passage's many words.

Letters: m queries, v stemmed words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scipy.sparse import csr_array

from vocable.analysis.generation import Generator, generate
from vocable.data.records import Example
from vocable.errors import ArgumentError, check_texts
from vocable.search.bm25 import BM25Index, count_words

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
