"""Windows that other processes cut are those that this one cuts, in the same order."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from vocable.errors import LostProcessError
from vocable.training.pretraining import window_workers, windows
from vocable.training.pretraining.window_workers import cut_in_processes
from vocable.training.pretraining.windows import SpanAlignment, WordAlignment, cut, write_windows

TERMS = ["fox", "foxes", "the", "books", "owl", "reads", "##s", "in", "a", "old"]
Places = Callable[[PreTrainedTokenizerFast], WordAlignment | SpanAlignment | None]
PLACES: dict[str, Places] = {
    "plain": lambda tokenizer: None,
    "words": lambda tokenizer: WordAlignment(TERMS, tokenizer, "words"),
    "whitespace": lambda tokenizer: WordAlignment(TERMS, tokenizer, "whitespace"),
    "spans": lambda tokenizer: SpanAlignment(TERMS, tokenizer),
}


@pytest.fixture
def tokenizer(tokenizers: dict[str, PreTrainedTokenizerFast]) -> PreTrainedTokenizerFast:
    return tokenizers["wordpiece"]


@pytest.fixture
def texts(toy_texts: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(windows, "BATCH", 20)
    some = [*islice(cycle(toy_texts), 170)]
    return [*some[:50], "", "  ", " ".join(some[:9]), "Ünïcode \U0001f98a fox\u2003books", *some[50:]]


def listed(found: Iterator[Any]) -> list[Any]:
    return [(list(map(int, ids)), None if words is None else words.tolist()) for ids, words in found]


@pytest.mark.parametrize(
    ("kind", "family"),
    [("plain", "unigram"), ("words", "wordpiece"), ("whitespace", "byte-level"), ("spans", "byte-level")],
)
def test_they_are_the_same(
    kind: str, family: str, tokenizers: dict[str, PreTrainedTokenizerFast], texts: list[str]
) -> None:
    tokenizer = tokenizers[family]
    alone, together = PLACES[kind](tokenizer), PLACES[kind](tokenizer)
    expected = listed(cut(texts, tokenizer, 24, alone))
    read: list[str] = []
    found = cut_in_processes((read.append(text) or text for text in texts), tokenizer, 24, together, here=2, workers=2)
    first = next(found)
    assert len(read) <= 60  # nothing is read before it is needed
    assert listed(chain([first], found)) == expected
    if alone is not None and together is not None:
        assert together.cut == alone.cut
        assert alone.cut > 0 or kind != "spans"


def test_a_short_corpus_starts_no_process(
    tokenizer: PreTrainedTokenizerFast, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(subprocess, "Popen")
    expected = listed(cut(texts, tokenizer, 24))
    assert listed(cut_in_processes(texts, tokenizer, 24, workers=2)) == expected
    assert listed(cut_in_processes(texts, tokenizer, 24, here=1, workers=1)) == expected


def children() -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    return [int(line.split()[0]) for line in found.stdout.splitlines() if "window_workers" in line]


def test_a_worker_that_dies_is_an_error_and_no_worker_stays(
    tokenizer: PreTrainedTokenizerFast, texts: list[str], tmp_path: Path
) -> None:
    def killing() -> Iterator[str]:
        for number, text in enumerate(texts):
            if number == 100:
                os.kill(children()[0], signal.SIGKILL)
            yield text

    def cutting(*args: Any) -> Iterator[Any]:
        return cut_in_processes(*args, here=1, workers=2)

    with pytest.raises(LostProcessError, match="a process that cuts the corpus has ended"):
        write_windows(tmp_path / "tokens", killing(), tokenizer, 24, cutting=cutting)
    assert not children()
    assert not (tmp_path / "tokens").exists()
    whole = write_windows(tmp_path / "tokens", texts, tokenizer, 24, cutting=cutting)
    assert [whole[i].tolist() for i in range(len(whole))] == [ids for ids, _ in listed(cut(texts, tokenizer, 24))]


def test_a_corpus_that_cannot_be_read_leaves_no_worker(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> None:
    def broken() -> Iterator[str]:
        yield from texts[:100]
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(cut_in_processes(broken(), tokenizer, 24, here=1, workers=2))
    assert not children()
    found = cut_in_processes(texts, tokenizer, 24, here=1, workers=2)
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert not children()


def test_a_tokenizer_that_a_worker_cannot_load_stays_here(
    texts: list[str], tokenizers: dict[str, PreTrainedTokenizerFast], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(subprocess, "Popen")

    class Own(PreTrainedTokenizerFast):
        pass

    own = Own(tokenizer_object=tokenizers["wordpiece"].backend_tokenizer)
    assert listed(cut_in_processes(texts, own, 24, here=1, workers=2)) == listed(cut(texts, own, 24))
    remote = deepcopy(tokenizers["wordpiece"])
    remote._auto_class = "AutoTokenizer"
    assert listed(cut_in_processes(texts, remote, 24, here=1, workers=2)) == listed(cut(texts, remote, 24))


def test_what_lies_in_the_working_folder_is_no_module_of_a_worker(
    tokenizer: PreTrainedTokenizerFast, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("queue.py", "tokenizers.py"):
        (tmp_path / name).write_text("raise SystemExit('not this one')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = listed(cut_in_processes(texts, tokenizer, 24, here=1, workers=2))
    assert found == listed(cut(texts, tokenizer, 24))


def test_white_space_is_that_of_python() -> None:
    assert [chr(code) for code in windows.WHITE] == [chr(code) for code in range(0x110000) if chr(code).isspace()]


def test_messages_come_back(tmp_path: Path) -> None:
    some: list[Any] = [(np.array([1, 2, 3]), np.array([-1, 0, -2])), (np.array([4]), np.array([7]))]
    for given in (some, [(ids, None) for ids, _ in some], []):
        found, count = window_workers._unpacked(window_workers._packed(given, 5))
        assert (listed(iter(found)), count) == (listed(iter(given)), 5)
