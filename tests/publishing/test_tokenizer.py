"""tokenizer.js, words.js and language.js under node: token for token the tokenizers library, word for word BM25's."""

from __future__ import annotations

import json
import random
import sys
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from tests.publishing.conftest import Node
from tests.publishing.reading import charsmap_of, read_file, read_model, tokenizer_of
from vocable.data import pydocs
from vocable.data.texts import as_text
from vocable.encoding.load import load_encoder
from vocable.encoding.tokens import token_surfaces
from vocable.errors import ModelError
from vocable.language.words import counted_words
from vocable.publishing.files import DATA, SiteFiles
from vocable.publishing.tokenizer import check_tokenizer, describe, write_pieces

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
SPELLED = """const { textOf } = await page("tokenizer.js"); return given.map(textOf);"""
WORDS = """const { wordsOf } = await page("words.js"); return given.map(wordsOf);"""
KNOWN = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) not in ("Cs", "Cn")]
KNOWN.remove("\U00011938")  # of Unicode 13: the library does not decompose it
NMT_NFKC = {one: found for one in KNOWN if (found := unicodedata.normalize("NFKC", one)) != one and one != "\uff5e"}
NMT_NFKC |= {chr(code): "" for code in range(1, 32)} | dict.fromkeys("\t\n\r\u200b\u200e▁\ufeff", " ")
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
    "C++11 g++ F# a#b x++y U.S. 3.14é e-mail IL-2 é-b a-b-cé 東-b b-東 AT&T v1.2.3_ -a.b 1.2.3 e.\u0301b a.e\u0301",
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
    names = {i: token for token, i in tokenizer.get_vocab().items()}  # an added token's own, not its normalized form
    return [[names[one] for one in some.ids] for some in encoded]


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


@cache
def trained() -> list[str]:
    """The texts that tokenizers are trained on, sentences in some scripts."""
    known = [one.sentence for one in pydocs.known_items()[:500]]
    return (
        known
        + [
            "Die Größe der Straße ändert sich, und die Äpfel fallen über den Zaun.",
            "Быстрая коричневая лиса прыгает через ленивую собаку.",
            "机器学习是人工智能的一个分支。検索エンジンは文書を探します。",
            "البحث عن المعلومات في النصوص",
        ]
        * 5
    )


def made_tokenizer(kind: str) -> Tokenizer:
    """A small tokenizer with the steps of a real one, trained on sentences in some scripts."""
    bpe, unigram = models.BPE(), models.Unigram([("<unk>", 0.0)], 0)
    tokenizer = Tokenizer(bpe if kind in ("gpt2", "roberta", "modernbert", "lower") else unigram)
    special = ["<unk>", "<pad>"]
    words = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.pre_tokenizer = (
        words if tokenizer.model.__class__ is models.Unigram else pre_tokenizers.ByteLevel(kind == "roberta")
    )
    if kind == "modernbert":
        tokenizer.normalizer = normalizers.NFC()
    if kind == "lower":
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    if kind == "xlm-roberta":
        tokenizer.normalizer = normalizers.Precompiled(charsmap_of(NMT_NFKC))
    if kind == "spaces":
        steps = [
            normalizers.Replace("``", '"'),
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Strip(left=False),
        ]
        tokenizer.normalizer = normalizers.Sequence(steps)
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    settings = {"vocab_size": 1_000, "special_tokens": special, "show_progress": False}
    if tokenizer.model.__class__ is models.Unigram:
        tokenizer.train_from_iterator(trained(), trainers.UnigramTrainer(unk_token="<unk>", **settings))
    else:
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        tokenizer.train_from_iterator(trained(), trainers.BpeTrainer(initial_alphabet=alphabet, **settings))
    tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True), AddedToken("[CLS]", rstrip=True)])
    tokenizer.add_tokens([AddedToken("Über", normalized=True)])
    if kind not in ("xlm-roberta", "spaces"):  # the library fails where a normalizer changes the token
        tokenizer.add_tokens([AddedToken("  ", normalized=True)])
    return tokenizer


KINDS = ["gpt2", "roberta", "modernbert", "lower", "xlm-roberta", "spaces"]


@pytest.fixture(scope="module")
def made() -> Callable[[str], Tokenizer]:
    return cache(made_tokenizer)


@pytest.mark.parametrize("kind", ["built-in", "wordpiece", *KINDS])
def test_tokens_are_those_of_the_library(
    kind: str, tokenizers: dict[str, Any], made: Callable[[str], Tokenizer], tmp_path: Path, run_node: Node
) -> None:
    if kind == "built-in":
        tokenizer = load_encoder("vocable-mini-doc").tokenization.backend
    else:
        tokenizer = tokenizers[kind].backend_tokenizer if kind in tokenizers else made(kind)
    texts = [*map(as_text, some_texts(600)), *(" ".join(trained()[i : i + 3]) for i in range(0, len(trained()), 100))]
    compare(published_tokens(tokenizer, texts, tmp_path, run_node), expected_tokens(tokenizer, texts), texts)


@pytest.mark.parametrize("kind", ["modernbert", "lower", "xlm-roberta"])
def test_tokens_of_any_texts(kind: str, made: Callable[[str], Tokenizer], tmp_path: Path, run_node: Node) -> None:
    """Texts as hypothesis makes them, in composed form as a query is, of characters of Unicode 14."""
    texts: list[str] = []
    letters = st.characters(exclude_categories=("Cs", "Cn"), max_codepoint=0x2FFFF)
    parts = st.one_of(
        st.text(letters, max_size=5), st.sampled_from([*NASTY, " ", "  ", "'ll", "'S", "\r\n", "e\u0301", "ｶ\u0301"])
    )

    @settings(max_examples=150, derandomize=True, database=None)
    @given(st.lists(parts, max_size=6).map("".join))
    def gather(text: str) -> None:
        texts.append(as_text(text, "text"))

    gather()
    tokenizer = made(kind)
    compare(published_tokens(tokenizer, texts, tmp_path, run_node), expected_tokens(tokenizer, texts), texts)


@pytest.mark.parametrize("lower", [True, False])
def test_every_character_is_normalized_as_the_library_does(lower: bool, run_node: Node) -> None:
    """Compare every code point of Unicode 14 but one, after a letter: the order of marks changes with the version."""
    settings = {"clean_text": True, "handle_chinese_chars": True, "lowercase": lower, "strip_accents": lower}
    texts = ["x".join(KNOWN[start : start + 500]) for start in range(0, len(KNOWN), 500)]
    library = normalizers.BertNormalizer(lowercase=lower, strip_accents=lower)
    compare(run_node(NORMALIZED, {"texts": texts, "settings": settings}), [*map(library.normalize_str, texts)], texts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "lower", "xlm-roberta"])
def test_every_character_is_read_as_the_library_does(
    kind: str, made: Callable[[str], Tokenizer], tmp_path: Path, run_node: Node
) -> None:
    tokenizer, texts = made(kind), [as_text("a".join(KNOWN[start : start + 50])) for start in range(0, len(KNOWN), 50)]
    compare(published_tokens(tokenizer, texts, tmp_path, run_node), expected_tokens(tokenizer, texts), texts)


@pytest.mark.parametrize("kind", ["wordpiece", "gpt2", "spaces"])
def test_tokens_are_spelled_as_text(
    kind: str, tokenizers: dict[str, Any], made: Callable[[str], Tokenizer], run_node: Node
) -> None:
    """Compare with the surfaces that an analysis of a vocabulary has; bytes stay as they are."""
    tokenizer = tokenizers[kind].backend_tokenizer if kind in tokenizers else made(kind)
    surfaces, vocabulary = token_surfaces(tokenizer, ()), tokenizer.get_vocab()
    read = {token: one for token, i in vocabulary.items() if (one := surfaces[i]) and one.kind != "special"}
    begins = ("", "…") if kind == "wordpiece" else ("", "")
    texts = {token: one for token, one in read.items() if one.kind != "bytes" and one.text.isprintable()}
    shown = {token: begins[not one.initial] + one.text.strip() for token, one in texts.items()}
    expected = [shown.get(token) or token for token in read]
    model = json.loads(tokenizer.to_str())["model"]["type"]
    compare(run_node(SPELLED, list(read), model=model), expected, list(read))


@pytest.mark.parametrize("language", ["english", "english+code", "german", "chinese", "korean", "none"])
def test_words_are_those_of_bm25(language: str, run_node: Node) -> None:
    texts = some_texts(4_000 if language.startswith("english") else 1_000)
    rng = random.Random(1)
    signed = ("".join(rng.choices("abC19 .-&+#_é東\u0301", k=16)) for _ in range(1_000))
    texts += [unicodedata.normalize("NFC", text) for text in signed]
    compare(run_node(WORDS, texts, language), counted_words(texts, language), texts)


def test_parts_of_tokenizers_that_a_browser_does_not_read_are_named(
    tokenizers: dict[str, Any], made: Callable[[str], Tokenizer]
) -> None:
    def refused(kind: str, message: str, **changed: Any) -> None:
        described = json.loads((tokenizers[kind].backend_tokenizer if kind in tokenizers else made(kind)).to_str())
        for part, value in changed.items():
            described[part] = described[part] | value if described[part] and isinstance(value, dict) else value
        with pytest.raises(ModelError, match=f"^mine: .*{message}"):
            check_tokenizer(Tokenizer.from_str(json.dumps(described)), "mine")

    with pytest.raises(ModelError):
        check_tokenizer(Tokenizer(models.WordLevel({"a": 0}, "a")), "mine")
    digits = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}]}
    refused("gpt2", "the pre_tokenizer Digits", pre_tokenizer=digits)
    refused("gpt2", "without use_regex", pre_tokenizer={"use_regex": False})
    refused("gpt2", "the normalizer Nmt", normalizer={"type": "Nmt"})
    refused("gpt2", "Replace of 'x.'", normalizer={"type": "Replace", "pattern": {"Regex": "x."}, "content": ""})
    refused("gpt2", "dropout", model={"dropout": 0.5})
    refused("gpt2", "without some bytes", model={"vocab": {"a": 0}, "merges": []}, added_tokens=[])
    refused("spaces", "prepend_scheme first", pre_tokenizer={"prepend_scheme": "first"})
    refused("xlm-roberta", "without an unknown token", model={"unk_id": None})
    refused("wordpiece", "0 steps in its pre_tokenizer", pre_tokenizer=None)
    word = {"id": 0, "content": "[PAD]", "single_word": True, "lstrip": False, "rstrip": False, "normalized": False}
    refused("wordpiece", r"added token '\[PAD\]'", added_tokens=[word | {"special": True}])


def test_a_document_is_found_by_words_that_mean_something(run_node: Node) -> None:
    script = (
        """const { foundBy } = await page("excerpt.js"); return given.map(([terms, words]) => foundBy(terms, words));"""
    )
    given = [
        [["my", "chat", "…ing"], ["My", "chatting", "repeats"]],
        [["my"], ["my"]],  # nothing else
        [["chat", "messages"], []],
    ]
    found = [["chatting", "repeats", "…ing"], ["my"], ["chat", "messages"]]
    assert run_node(script, given, "english") == found
