"""Normalized vocabularies: trained on a corpus, what they do to it, and what of a text's surface a vocabulary keeps.

"Why Advanced Encoders Lag on Sparse Retrieval?" finds the cause in vocabularies that keep upper case and accents: one
word is then several terms ("Token", "token", "Ġtoken"), which do not match each other (§1). It trains byte-pair
encodings of 10k to 50k tokens on lower-cased text without accents, for `transfer` to move a model onto (§6.6).
WordPiece vocabularies are learned in the same way: the library's trainer merges pairs for them, too.

A corpus is texts, read once, or a Counter of texts. Vocabularies are learned from counted words, so that a corpus that
is needed several times can be counted first: `count_words` streams it, and holds its distinct words.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import tee
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from vocable.adapt.alignment import token_surfaces
from vocable.data.texts import iter_texts
from vocable.encoder.terms import token_ids, without_accents
from vocable.errors import ArgumentError, DataError
from vocable.options import Count, checked
from vocable.progress import track
from vocable.storage import SETTINGS, finished, refuse_taken, replacing_folder
from vocable.tables import Table, Tabular

# Words and their counterparts, which a tokenizer that normalizes cannot tell apart.
CASES = [(word, word.lower()) for word in ("The", "London", "USA", "A", "B", "Q", "Z")]
ACCENTS = [("café", "cafe"), ("naïve", "naive"), ("über", "uber"), ("é", "e"), ("ñ", "n"), ("å", "a")]


def tells_apart(tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[str, str]]) -> bool:
    """Whether the tokens of any of the words differ from those of its counterpart."""
    ids = [tokenizer(list(side), add_special_tokens=False)["input_ids"] for side in zip(*pairs, strict=True)]
    return bool(ids[0] != ids[1])


def redundancy(tokenizer: PreTrainedTokenizerBase) -> float:
    """The share of tokens that only repeat another one's form: as many could go if surface forms were folded.

    Tokens have the same form when their texts are equal in lower case and without accents, whether or not they begin a
    word. Special tokens and bytes that are no text do not count. It is 0 for an empty vocabulary.
    """
    kept = [unit.text for unit in token_surfaces(tokenizer) if unit and unit.kind not in ("special", "bytes")]
    return 1 - len({without_accents(text.lower()) for text in kept}) / len(kept) if kept else 0.0


Algorithm = Literal["wordpiece", "bpe"]
Corpus = Iterable[str] | Mapping[str, int]

SPECIAL = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
NORMALIZER = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=True, lowercase=True)
CUTTER = pre_tokenizers.BertPreTokenizer()  # at punctuation, and between Chinese characters
PREFIX = "##"  # of what continues a word, in WordPiece
ALPHABET = 1000  # characters of a WordPiece vocabulary at most, as BERT's; words with others are [UNK]
SEEN_TWICE = 2  # a piece is worth a token if it is seen so often
RARE = 100  # a token seen less often in the corpus is rare: at a masking rate of 0.3 it is guessed some 30 times
BATCH = 1000


class Fragmentation(NamedTuple):
    """How a vocabulary cuts a corpus."""

    size: int  # tokens of the vocabulary, special ones included
    words: int  # of the corpus: runs of characters that are no white space
    tokens: int  # that they are cut into, special ones left out
    tokens_per_word: float
    rare: float  # share of the vocabulary's ordinary tokens that the corpus has fewer than RARE times


@dataclass(frozen=True)
class Vocabularies(Tabular):
    """How vocabularies of several sizes cut the corpus that they were trained on."""

    cuts: tuple[Fragmentation, ...]

    def table(self) -> Table:
        """Return a row for each size."""
        rows = [[f"{one.size:,}", f"{one.tokens_per_word:.3f}", f"{one.rare:.1%}"] for one in self.cuts]
        return Table("", ["size", "tokens/word", "rare tokens"], rows)

    def to_json(self) -> dict[str, Any] | list[dict[str, Any]]:
        """Return the figures of one vocabulary as JSON values, of several a list."""
        values = [one._asdict() for one in self.cuts]
        return values if len(values) > 1 else values[0]


@checked
def train_vocabulary(
    texts: Iterable[str],
    size: Count | Sequence[Count],
    *,
    algorithm: Algorithm = "wordpiece",
    output: str | os.PathLike[str] | None = None,
) -> Vocabularies:
    """Train a vocabulary on texts and save its tokenizer, or compare vocabularies of several sizes.

    Args:
        texts: the corpus, read once; its distinct words are held.
        size: how many tokens, special ones included; of several, each is trained. More in `learn_vocabulary`.
        algorithm: "bpe" knows every character, "wordpiece" the 1,000 most frequent. More in `learn_vocabulary`.
        output: folder for the tokenizer of the one size; there only when it is whole.

    Raises:
        ArgumentError: as `learn_vocabulary` does, several sizes with an output, or something is at `output` already.
        DataError: as `learn_vocabulary` does.
    """
    sizes = [size] if isinstance(size, int) else list(size)
    if not sizes or (output is not None and len(sizes) > 1):
        raise ArgumentError("give one size with output, or several to compare, of which nothing is written")
    given = iter_texts(texts)
    total = len(texts) if isinstance(texts, Sized) else None
    if output is not None and not (Path(output) / SETTINGS).is_file():
        refuse_taken(Path(output))
    words = count_words(track(given, "texts", total))
    made_from = {"sizes": sizes, "algorithm": algorithm, "words": zlib.crc32(repr(sorted(words.items())).encode())}
    done = output is not None and finished(output, made_from)
    tokenizers = [learn_vocabulary(words, one, algorithm=algorithm) for one in sizes]
    found = Vocabularies(tuple(fragmentation(tokenizer, words) for tokenizer in tokenizers))
    if output is not None and not done:
        with replacing_folder(output, made_from) as unfinished:
            tokenizers[0].save_pretrained(unfinished)
    return found


@checked
def learn_vocabulary(texts: Corpus, size: Count, *, algorithm: Algorithm = "wordpiece") -> PreTrainedTokenizerFast:
    """Learn a vocabulary of `size` tokens from a corpus: lower-case, without accents, cut as BERT cuts.

    The result is the same in every process and for every order of the texts. Special tokens, template and cutting are
    BERT's.

    Args:
        texts: the corpus, as `count_words` takes it.
        size: special tokens included.
        algorithm: "wordpiece" marks what continues a word with ##; characters beyond the 1,000 most frequent are
            unknown to it. "bpe" works on bytes, so that nothing is unknown, and marks every word's beginning with Ġ,
            also that of a text or after punctuation, so that a word is spelled in one way only.

    Raises:
        ArgumentError: an unknown algorithm, or a size that does not even hold the characters.
        DataError: the corpus has no text, or not enough for so many tokens.
    """
    if algorithm not in get_args(Algorithm):
        raise ArgumentError(f"algorithm is wordpiece or bpe, not {algorithm!r}")
    words = _counts((piece, times) for word, times in count_words(texts).items() for piece in _cut(word))
    if not words:
        raise DataError("the corpus has no text to learn a vocabulary from")
    tokenizer = _wordpiece(words, size) if algorithm == "wordpiece" else _byte_pairs(words, size)
    tokenizer.normalizer = NORMALIZER
    found = tokenizer.get_vocab_size()
    if found < size:
        raise DataError(f"the corpus gives a vocabulary of {found:,} tokens, not {size:,}: add texts or ask for fewer")
    cls, sep = SPECIAL["cls_token"], SPECIAL["sep_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (cls, sep)],
    )
    # Without token types: not every backbone that the vocabulary may be moved to takes them.
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=["input_ids", "attention_mask"], **SPECIAL
    )


def fragmentation(tokenizer: PreTrainedTokenizerBase, texts: Corpus) -> Fragmentation:
    """Return how many tokens a word of the corpus is cut into (table 9), and how many tokens are rare in it.

    A word is a run of characters that are no white space, which is our reading. Counted words will do for a vocabulary
    of `learn_vocabulary`, which cuts there in any case; other tokenizers are to be given whole texts.
    """
    size = len(tokenizer)
    counts: NDArray[np.float64] = np.zeros(size)
    words = 0
    pairs, ahead = tee(_counted(texts))
    for (text, times), ids in zip(pairs, token_ids(tokenizer, (text for text, _ in ahead)), strict=True):
        np.add.at(counts, np.asarray(ids, dtype=np.int64), times)
        words += times * len(text.split())
    if not words:
        raise DataError("the corpus has no text to cut into tokens")
    ordinary = np.ones(size, dtype=np.bool_)
    ordinary[tokenizer.all_special_ids] = False
    tokens = int(counts.sum())
    return Fragmentation(size, words, tokens, tokens / words, float((counts[ordinary] < RARE).mean()))


def count_words(texts: Corpus) -> Counter[str]:
    """How often the corpus has each run of characters that are no white space."""
    return _counts((word, times) for text, times in _counted(texts) for word in text.split())


def _counted(texts: Corpus) -> Iterator[tuple[str, int]]:
    return iter(texts.items()) if isinstance(texts, Mapping) else ((text, 1) for text in iter_texts(texts))


def _counts(pairs: Iterable[tuple[str, int]]) -> Counter[str]:
    """The sum of the numbers that each string stands with."""
    counts: Counter[str] = Counter()
    for item, times in pairs:
        counts[item] += times
    return counts


def _cut(word: str) -> list[str]:
    """The pieces of a word that is normalized and cut."""
    return [piece for piece, _ in CUTTER.pre_tokenize_str(NORMALIZER.normalize_str(word))]


def _repeated(words: Mapping[str, int]) -> Iterator[str]:
    """The words as often as they were counted, for the library's trainers, which take texts only."""
    for word, times in sorted(words.items()):
        for start in range(0, times, BATCH):
            yield " ".join([word] * min(BATCH, times - start))


def _wordpiece(words: Mapping[str, int], size: int) -> Tokenizer:
    """A tokenizer with the vocabulary that the library's trainer learns, the same in every process.

    The trainer breaks ties by the numbers of tokens, and numbers continuations of one character in the order of a hash
    table. Numbered beforehand, as if they were special, they leave nothing to chance.
    """
    characters = _counts((character, times) for word, times in words.items() for character in word)
    alphabet = sorted(sorted(characters, key=lambda character: (-characters[character], character))[:ALPHABET])
    continuing = {character for word in words for character in word[1:]}
    first = [*SPECIAL.values(), *alphabet, *(PREFIX + character for character in alphabet if character in continuing)]
    learner = Tokenizer(models.WordPiece(unk_token=SPECIAL["unk_token"]))
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    told = _trainer_settings(size, first, alphabet)
    trainer = trainers.WordPieceTrainer(**told, limit_alphabet=len(alphabet), continuing_subword_prefix=PREFIX)
    learner.train_from_iterator(_repeated(words), trainer)
    tokenizer = Tokenizer(models.WordPiece(learner.get_vocab(), unk_token=SPECIAL["unk_token"]))
    tokenizer.pre_tokenizer = CUTTER
    tokenizer.decoder = decoders.WordPiece(prefix=PREFIX)
    return tokenizer


def _byte_pairs(words: Mapping[str, int], size: int) -> Tokenizer:
    """Byte-level BPE over whole words of BERT's; nothing in the library's trainer for it is left to chance."""
    tokenizer = Tokenizer(models.BPE())
    spelling = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([CUTTER, spelling])
    told = _trainer_settings(size, list(SPECIAL.values()), pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(_repeated(words), trainers.BpeTrainer(**told))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _trainer_settings(size: int, special: list[str], alphabet: list[str]) -> dict[str, Any]:
    if size < (least := len({*special, *alphabet})):
        raise ArgumentError(f"a vocabulary of {size:,} tokens is too small: {least:,} are special or characters")
    tokens = {"vocab_size": size, "special_tokens": special, "initial_alphabet": alphabet}
    return tokens | {"min_frequency": SEEN_TWICE, "show_progress": False}
