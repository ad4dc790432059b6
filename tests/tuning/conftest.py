"""Documents of several tests of tunings."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.tuning.small import write_corpus
from vocable.data import Document, read_corpus


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory, toy_texts: list[str]) -> Path:
    """A corpus of 90 documents with titles: random words of the toy vocabulary."""
    return write_corpus(tmp_path_factory.mktemp("pages") / "pages.jsonl", toy_texts, 90)


@pytest.fixture(scope="session")
def page_documents(pages: Path) -> list[Document]:
    """The documents of `pages`."""
    return list(read_corpus(pages))


@pytest.fixture(scope="session")
def many() -> list[Document]:
    """400 documents of random words, some with titles, some short, with 60 copies of others that differ in a word."""
    rng = random.Random(0)
    words = [f"{start}{middle}{end}" for start in "bdgklmnprt" for middle in ("a", "ei", "o", "u") for end in "dlmnrt"]
    found = []
    for number in range(400):
        sentences = [" ".join(rng.choices(words, k=rng.randint(4, 12))) + "." for _ in range(rng.choice([1, 5, 12]))]
        title = " ".join(rng.choices(words, k=3)) if number % 3 else ""
        found.append(Document(f"d{number}", " ".join(sentences), title))
    for number in range(60):
        parts = found[number * 5].text.split()
        parts[rng.randrange(len(parts))] = "changed"
        found.append(Document(f"copy{number}", " ".join(parts), found[number * 5].title))
    return found
