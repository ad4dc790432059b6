"""Train normalized vocabularies on a corpus, and measure the redundancy and fragmentation of vocabularies.

In vocabularies with upper case and accents, a word is several terms ("Token", "token", "Ġtoken"), which do not match
each other (Geng and Yang 2026, §1). The paper trains byte-pair encodings of 10k to 50k tokens on lower-cased text
without accents. `transfer` moves a model onto such a vocabulary (§6.6).

A corpus is texts, which are read once. Where a corpus is used several times, it is counted texts (`count_words`).
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import tee
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from vocable.core.progress import track
from vocable.core.storage import SETTINGS, finished, refuse_taken, replacing_folder
from vocable.core.tables import Table, Tabular
from vocable.data.texts import iter_texts
from vocable.encoding.terms import token_ids, without_accents
from vocable.encoding.tokens import WORDPIECE, token_surfaces
from vocable.errors import ArgumentError, DataError
from vocable.options import Count, checked

# Pairs that a normalizing tokenizer cannot distinguish.
CASES = [(word, word.lower()) for word in ("The", "London", "USA", "A", "B", "Q", "Z")]
ACCENTS = [("café", "cafe"), ("naïve", "naive"), ("über", "uber"), ("é", "e"), ("ñ", "n"), ("å", "a")]


def tells_apart(tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[str, str]]) -> bool:
    """Return whether the two words of any pair have different tokens."""
    ids = [tokenizer(list(side), add_special_tokens=False)["input_ids"] for side in zip(*pairs, strict=True)]
    return bool(ids[0] != ids[1])


def redundancy(tokenizer: PreTrainedTokenizerBase) -> float:
    """Return the share of tokens whose text, in lower case and without accents, repeats; 0 for an empty vocabulary.

    A token that begins a word and the same text inside a word count as a repetition. Special tokens and bytes that are
    no text do not count.
    """
    kept = [unit.text for unit in token_surfaces(tokenizer) if unit and unit.kind not in ("special", "bytes")]
    return 1 - len({without_accents(text.lower()) for text in kept}) / len(kept) if kept else 0.0


Algorithm = Literal["wordpiece", "bpe"]
Corpus = Iterable[str] | Mapping[str, int]

SPECIAL_TOKENS = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
NORMALIZER = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=True, lowercase=True)
PRE_TOKENIZER = pre_tokenizers.BertPreTokenizer()  # cuts at punctuation, and between Chinese characters
ALPHABET = 1000  # characters of a WordPiece vocabulary at most, as in BERT; words with other characters are [UNK]
MIN_FREQUENCY = 2  # occurrences of a piece that becomes a token
RARE = 100  # a token with fewer occurrences is guessed less than 30 times at a masking rate of 0.3
REPEATED = 1000  # repetitions of a word in a training text


class Fragmentation(NamedTuple):
    """Statistics of a corpus cut by a vocabulary."""

    size: int  # tokens of the vocabulary, including special ones
    words: int  # words of the corpus: runs of characters without white space
    tokens: int  # tokens of these words, without special ones
    tokens_per_word: float
    rare: float  # share of the ordinary tokens that occur fewer than RARE times


@dataclass(frozen=True)
class Vocabularies(Tabular):
    """Statistics of vocabularies of several sizes on their training corpus."""

    cuts: tuple[Fragmentation, ...]

    def table(self) -> Table:
        """Return a row for each size."""
        rows = [[f"{cut.size:,}", f"{cut.tokens_per_word:.3f}", f"{cut.rare:.1%}"] for cut in self.cuts]
        return Table("", ["size", "tokens/word", "rare tokens"], rows)

    def to_json(self) -> object:
        """Return the statistics as JSON values: an object for one vocabulary, a list for several."""
        values = [cut._asdict() for cut in self.cuts]
        return values if len(values) > 1 else values[0]


@checked
def train_vocabulary(
    texts: Iterable[str],
    size: Count | Sequence[Count],
    *,
    algorithm: Algorithm = "wordpiece",
    output: str | os.PathLike[str] | None = None,
) -> Vocabularies:
    """Train a vocabulary on texts, or compare several sizes.

    Texts lose capitals and accents. `vocable transfer` moves a model onto the vocabulary. With several sizes nothing is
    written: the table shows the tokens per word, and the share of tokens that are too rare in the texts to be learned.

    Args:
        texts: the corpus, read once; its distinct words are held in memory.
        size: number of tokens, including special ones; several sizes are compared.
        algorithm: bpe knows every character, wordpiece the 1,000 most frequent.
        output: folder for the tokenizer (written atomically); with a single size only.

    Raises:
        ArgumentError: several sizes with an output, an existing output, or as in `train_tokenizer`.
        DataError: as in `train_tokenizer`.
    """
    sizes = [size] if isinstance(size, int) else list(size)
    if not sizes or (output is not None and len(sizes) > 1):
        raise ArgumentError("output needs exactly one size; several sizes are only compared")
    stream = iter_texts(texts)
    total = len(texts) if isinstance(texts, Sized) else None
    # Refuse a foreign output before the texts are read. The texts tell whether it is finished.
    if output is not None and not (Path(output) / SETTINGS).is_file():
        refuse_taken(Path(output))
    words = count_words(track(stream, "texts", total))
    made_from = {"sizes": sizes, "algorithm": algorithm, "words": zlib.crc32(repr(sorted(words.items())).encode())}
    done = output is not None and finished(output, made_from)
    tokenizers = [train_tokenizer(words, count, algorithm=algorithm) for count in sizes]
    vocabularies = Vocabularies(tuple(fragmentation(tokenizer, words) for tokenizer in tokenizers))
    if output is not None and not done:
        with replacing_folder(output, made_from) as unfinished:
            tokenizers[0].save_pretrained(unfinished)
    return vocabularies


@checked
def train_tokenizer(texts: Corpus, size: Count, *, algorithm: Algorithm = "wordpiece") -> PreTrainedTokenizerFast:
    """Train a tokenizer with a vocabulary of `size` tokens: lower-case, without accents, pre-tokenized as in BERT.

    The result is the same in every process and for every order of the texts. Special tokens and template are BERT's.

    Args:
        texts: the corpus: texts, or texts with their counts.
        size: number of tokens, including special ones.
        algorithm: "wordpiece" marks tokens that continue a word with ##, and knows only the 1,000 most frequent
            characters. "bpe" works on bytes, so that nothing is unknown. It marks every beginning of a word with Ġ,
            even at the start of a text and after punctuation, so that a word has a single spelling.

    Raises:
        ArgumentError: a size below the number of characters and special tokens.
        DataError: a corpus without text, or too small for `size` tokens.
    """
    # Count the words that are left after BERT's normalization.
    words = _counts((piece, times) for word, times in count_words(texts).items() for piece in _cut(word))
    if not words:
        raise DataError("the corpus has no text to train a vocabulary on")
    tokenizer = _wordpiece(words, size) if algorithm == "wordpiece" else _byte_pairs(words, size)
    tokenizer.normalizer = NORMALIZER
    count = tokenizer.get_vocab_size()
    if count < size:
        raise DataError(f"the corpus gives a vocabulary of {count:,} tokens, not {size:,}: add texts or ask for fewer")
    # A text stands between BERT's special tokens.
    cls, sep = SPECIAL_TOKENS["cls_token"], SPECIAL_TOKENS["sep_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (cls, sep)],
    )
    inputs = ["input_ids", "attention_mask"]  # without token types, which not every backbone takes
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=inputs, **SPECIAL_TOKENS)


def fragmentation(tokenizer: PreTrainedTokenizerBase, texts: Corpus) -> Fragmentation:
    """Measure the tokens per word of a corpus (Geng and Yang 2026, table 9), and the share of rare tokens.

    A word is a run of characters without white space; this is our reading of the paper. Counted words are enough for
    the tokenizers of `train_tokenizer`, which cut at white space; other tokenizers need whole texts.
    """
    size, words = len(tokenizer), 0
    counts: NDArray[np.float64] = np.zeros(size)
    pairs, ahead = tee(_counted(texts))
    for (text, times), ids in zip(pairs, token_ids(tokenizer, (text for text, _ in ahead)), strict=True):
        np.add.at(counts, np.asarray(ids, dtype=np.int64), times)
        words += times * len(text.split())
    if not words:
        raise DataError("the corpus has no text to cut into tokens")
    ordinary = np.setdiff1d(np.arange(size), tokenizer.all_special_ids)
    tokens = int(counts.sum())
    return Fragmentation(size, words, tokens, tokens / words, float((counts[ordinary] < RARE).mean()))


def count_words(texts: Corpus) -> Counter[str]:
    """Count the runs of characters without white space in a corpus."""
    return _counts((word, times) for text, times in _counted(texts) for word in text.split())


def _counted(texts: Corpus) -> Iterator[tuple[str, int]]:
    return iter(texts.items()) if isinstance(texts, Mapping) else ((text, 1) for text in iter_texts(texts))


def _counts(pairs: Iterable[tuple[str, int]]) -> Counter[str]:
    """Sum the counts of each string."""
    counts: Counter[str] = Counter()
    for item, times in pairs:
        counts[item] += times
    return counts


def _cut(word: str) -> list[str]:
    """Return the pieces of a word, normalized and pre-tokenized."""
    return [piece for piece, _ in PRE_TOKENIZER.pre_tokenize_str(NORMALIZER.normalize_str(word))]


def _repeated(words: Mapping[str, int]) -> Iterator[str]:
    """Yield texts that repeat each word as often as it was counted, because the library's trainers only take texts."""
    for word, times in sorted(words.items()):
        for start in range(0, times, REPEATED):
            yield " ".join([word] * min(REPEATED, times - start))


def _wordpiece(words: Mapping[str, int], size: int) -> Tokenizer:
    """Train WordPiece, with the same result in every process.

    The library's trainer breaks ties by token ids. It assigns the ids of one-character continuations in the order of a
    hash table, unless they are passed as special tokens.
    """
    characters = _counts((character, times) for word, times in words.items() for character in word)
    alphabet = sorted(sorted(characters, key=lambda character: (-characters[character], character))[:ALPHABET])
    continuing = {character for word in words for character in word[1:]}
    mark = WORDPIECE.continuation_mark
    continuations = [mark + character for character in alphabet if character in continuing]
    learner = Tokenizer(models.WordPiece(unk_token=SPECIAL_TOKENS["unk_token"]))
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    options = _trainer_options(size, [*SPECIAL_TOKENS.values(), *alphabet, *continuations], alphabet)
    trainer = trainers.WordPieceTrainer(**options, limit_alphabet=len(alphabet), continuing_subword_prefix=mark)
    learner.train_from_iterator(_repeated(words), trainer)
    tokenizer = Tokenizer(models.WordPiece(learner.get_vocab(), unk_token=SPECIAL_TOKENS["unk_token"]))
    tokenizer.pre_tokenizer = PRE_TOKENIZER
    tokenizer.decoder = decoders.WordPiece(prefix=mark)
    return tokenizer


def _byte_pairs(words: Mapping[str, int], size: int) -> Tokenizer:
    """Train byte-level BPE within the words of BERT's pre-tokenizer; the library's trainer is deterministic."""
    tokenizer = Tokenizer(models.BPE())
    spelling = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([PRE_TOKENIZER, spelling])
    options = _trainer_options(size, list(SPECIAL_TOKENS.values()), pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(_repeated(words), trainers.BpeTrainer(**options))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _trainer_options(size: int, special: list[str], alphabet: list[str]) -> dict[str, Any]:
    if size < (least := len({*special, *alphabet})):
        raise ArgumentError(f"a vocabulary of {size:,} tokens is too small: {least:,} are special or characters")
    tokens = {"vocab_size": size, "special_tokens": special, "initial_alphabet": alphabet}
    return tokens | {"min_frequency": MIN_FREQUENCY, "show_progress": False}
