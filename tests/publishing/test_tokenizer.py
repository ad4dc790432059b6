"""tokenizer.js, words.js and language.js under node: token for token the tokenizers library, word for word BM25's."""

from __future__ import annotations

import json
import random
import re
import sys
import unicodedata
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import Stemmer
from tokenizers import Tokenizer, normalizers

from tests.publishing.conftest import Node
from vocable.data import pydocs
from vocable.encoder.load import load_encoder
from vocable.encoder.protocol import Tokenization
from vocable.errors import ArgumentError, ModelError
from vocable.publishing.files import DATA, SiteFiles, read_file
from vocable.publishing.languages import SNOWBALL, language_script
from vocable.publishing.pieces import read_model, write_pieces
from vocable.publishing.publication import PAGE
from vocable.publishing.tokenizer import check_tokenizer, describe, tokenizer_of
from vocable.retrieval.words import stemmed

# The tokens of each text, by the files of the pieces as they are read in a browser: only the file of a word's range.
TOKENS = """
const { tokensOf } = await page("tokenizer.js"), { Cursor, inflated, nameFor } = await page("bytes.js");
const content = async (name) => inflated(new Uint8Array(await (await fetch(`file://${given.folder}/${name}.bin`)).arrayBuffer()));
const files = new Map();
const read = async (name) => {
  if (!files.has(name)) files.set(name, new Cursor(await content(name)).pieces());
  return files.get(name);
};
const pieces = async (rest, continuing = false) => {
  const name = nameFor(given.tables[Number(continuing)], rest);
  return name ? read(name) : new Map();
};
const found = [];
for (const text of given.texts) found.push(await tokensOf(text, given.described, { pieces, content }));
return found;
"""
NORMALIZED = """
const { normalized } = await page("tokenizer.js");
return given.texts.map((text) => normalized(text, given.settings));
"""
STEMS = """const { stemsOf } = await page("words.js"); return given.map((text) => stemsOf(text));"""
NASTY = [
    *("", " ", "\t\n\r", "\0", "\ufffd", "[CLS] [SEP] x[MASK]y [UNK]", "[cls]", "##ing", "a##b", "don't", "x" * 100),
    *("x" * 101, "é" * 100, "Ångström naïve ÉCOLE", "İstanbul ıI", "ΟΔΥΣΣΕΥΣ ὈΔΥΣΣΕΎΣ", "ß ẞ ﬁ ŉ", "e\u0301\u0327x"),
    *(
        "中国南方 ภาษาไทย हिन्दी में",
        "\uf900\ufa30\U0002f800",
        "한국어 조선말",
        "a\u200bb\u200dc\u2060d",
        "\u00a0\u2003x\u3000y",
    ),
    *("😀👩‍👩‍👧‍👦🏳️‍🌈 ok", "\u202eabc\u202c", "1,234.56€ $5 50% a_b C++ C# .NET", "foo‐bar—baz…", "a\u00adb"),
    *("𝕳𝖊𝖑𝖑𝖔 Ⅳ ½ ²", "\U000e0041\U000e0042", "unaffable unrecognizability antidisestablishmentarianism"),
    *("qwxz" * 20, "\ue000\uf8ff", "\u0378\u0379 x"),
]


def some_texts(count: int) -> list[str]:
    """Real sentences, and mixtures of characters of all planes and scripts."""
    rng = random.Random(0)
    sentences = [one.sentence for one in pydocs.known_items()][: count // 2]
    pools = [(32, 127), (0, 0x250), (0x250, 0x1000), (0x1000, 0x3000), (0x3000, 0xD800), (0xE000, 0x10000)]
    pools.append((0x10000, 0x30000))
    found = [*NASTY, *sentences]
    while len(found) < count:
        chosen = [rng.choice(pools[: rng.randrange(1, len(pools) + 1)]) for _ in range(rng.randrange(1, 12))]
        parts = ["".join(_character(rng, pool) for _ in range(rng.randrange(1, 6))) for pool in chosen]
        found.append(" ".join([*parts, rng.choice(sentences)[: rng.randrange(40)]]))
    return found


def _character(rng: random.Random, pool: tuple[int, int]) -> str:
    """A character that every Unicode of the last ten years has, or none has."""
    while True:
        found = chr(rng.randrange(*pool))
        if unicodedata.category(found) not in ("Cs", "Cn") and len(unicodedata.normalize("NFD", found)) < 4:
            return found


def expected_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[str]]:
    encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
    return [[tokenizer.id_to_token(one) for one in some.ids] for some in encoded]


def published_tokens(tokenizer: Tokenizer, texts: Sequence[str], folder: Path, run_node: Node) -> list[list[str]]:
    """The tokens of texts under node, with a vocabulary in files; those that Python reads from them are the same."""
    check_tokenizer(tokenizer, "model")
    files = SiteFiles(folder)
    described, tables = describe(files, tokenizer, []), write_pieces(files, tokenizer, [])
    content = partial(read_file, folder)
    found = tokenizer_of(described, read_model(described["model"], tables, content), content)
    compare(expected_tokens(found, texts), expected_tokens(tokenizer, texts), texts)
    both = [table._asdict() for table in (tables.initial, tables.continuing)]
    given = {"folder": str(folder / DATA), "tables": both, "described": described, "texts": texts}
    tokens: list[list[str]] = run_node(TOKENS, given, model=described["model"]["type"])
    return tokens


def compare(found: Sequence[Any], expected: Sequence[Any], texts: Sequence[str]) -> None:
    wrong = [pair for pair in zip(texts, found, expected, strict=True) if pair[1] != pair[2]]
    assert not wrong, json.dumps(wrong[:3])


def test_tokens_of_the_built_in_model(tmp_path: Path, run_node: Node) -> None:
    tokenization, texts = load_encoder("vocable-mini-doc").tokenization, some_texts(4_000)
    expected = [one.tokens for one in tokenization.backend.encode_batch(texts, add_special_tokens=False)]
    compare(tokens_in_node(tokenization, texts, tmp_path, run_node), expected, texts)


@pytest.mark.parametrize("lower", [True, False])
def test_every_character_is_normalized_as_the_library_does(lower: bool, run_node: Node) -> None:
    """Compare every code point of Unicode 14 but one, after a letter: the order of marks changes with the version."""
    tokenization = load_encoder("vocable-mini-doc").tokenization
    settings = asdict(tokenizer_settings(tokenization, "model")) | {"lowercase": lower, "strip_accents": lower}
    known = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) not in ("Cs", "Cn")]
    known.remove("\U00011938")  # of Unicode 13: the library does not decompose it
    texts = ["x".join(known[start : start + 500]) for start in range(0, len(known), 500)]
    library = normalizers.BertNormalizer(lowercase=lower, strip_accents=lower)
    compare(run_node(NORMALIZED, {"texts": texts, "settings": settings}), [*map(library.normalize_str, texts)], texts)


def test_tokens_of_another_vocabulary(tokenizers: dict[str, Any], tmp_path: Path, run_node: Node) -> None:
    from vocable.encoder.torch_model import HostTokenization

    tokenization, texts = HostTokenization(tokenizers["wordpiece"]), some_texts(1_000)
    expected = [one.tokens for one in tokenization.backend.encode_batch(texts, add_special_tokens=False)]
    compare(tokens_in_node(tokenization, texts, tmp_path, run_node), expected, texts)


@pytest.mark.parametrize("language", ["english", "german", "chinese", "korean", "none"])
def test_words_are_those_of_bm25(language: str, run_node: Node) -> None:
    texts = some_texts(4_000 if language == "english" else 1_000)
    compare(run_node(STEMS, texts, language), stemmed(texts, language), texts)


@pytest.mark.parametrize(
    "language", ["english", *sorted(path.stem for path in SNOWBALL.glob("*.js") if path.stem != "base")]
)
def test_stems_are_those_of_snowball(language: str, run_node: Node) -> None:
    """Words of the built-in corpus, and made-up words of letters and endings of the language's rules."""
    rng = random.Random(1)
    path = PAGE / "stemmer.js" if language == "english" else SNOWBALL / f"{language}.js"
    endings = [one for one in re.findall(r'"(\w+)"', path.read_text(encoding="utf-8")) if one == one.lower()]
    letters = sorted({*"".join(endings)})
    beginnings = [
        "gener",
        "commun",
        "arsen",
        "past",
        "univers",
        "later",
        "emerg",
        "organ",
        "inter",
        "succ",
        "proc",
        "even",
    ]
    words = sorted({word for one in pydocs.documents() for word in one.text.lower().split() if word.isidentifier()})
    starts = [word[: rng.randrange(1, 7)] for word in rng.sample(words, 2_000)]
    starts += rng.choices(beginnings, k=1_000) if language == "english" else []
    starts += ["".join(rng.choices(letters, k=rng.randrange(1, 7))) for _ in range(4_000)]
    made = [start + rng.choice(endings) + rng.choice(["", *endings]) for start in starts]
    made = [unicodedata.normalize("NFC", one) for one in [*words[:: 1 if language == "english" else 7], *made]]
    script = 'const { stem } = await page("language.js"); return given.map(stem);'
    compare(run_node(script, made, language), Stemmer.Stemmer(language).stemWords(made), made)


def test_a_language_without_a_stemmer_for_browsers_is_refused() -> None:
    for language in ("danish", "polish"):
        with pytest.raises(ArgumentError, match=f"words of {language}.*--no-bm25"):
            language_script(language)


def test_another_tokenizer_is_refused(tokenizers: dict[str, Any]) -> None:
    from vocable.encoder.torch_model import HostTokenization

    for family in ("byte-level", "unigram"):
        with pytest.raises(ModelError, match=r"mine: .*WordPiece"):
            tokenizer_settings(HostTokenization(tokenizers[family]), "mine")
    described = json.loads(tokenizers["wordpiece"].backend_tokenizer.to_str())
    described["added_tokens"][0]["lstrip"] = True
    changed = HostTokenization(tokenizers["wordpiece"])
    changed.tokenizer = type("Changed", (), {"backend_tokenizer": Tokenizer.from_str(json.dumps(described))})()
    with pytest.raises(ModelError, match="added tokens"):
        tokenizer_settings(changed, "mine")
