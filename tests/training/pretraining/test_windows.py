"""Windows cut in worker processes equal those cut here, in the same order."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain, cycle, islice
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from vocable.errors import DataError, LostProcessError
from vocable.training.pretraining import windows
from vocable.training.pretraining.windows import (
    SHORTEST,
    WHITE,
    Cutter,
    SpanFinder,
    TermFinder,
    Windows,
    WordFinder,
    cut_texts,
    write_windows,
)

LENGTH = 20


@pytest.fixture
def texts(toy_texts: list[str]) -> list[str]:
    return [*toy_texts[:7], "", " ".join(toy_texts[:6]), "fox", " \n", " ".join(toy_texts[10:30])]


def tokens(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def expected(tokenizer: PreTrainedTokenizerFast, texts: list[str], length: int) -> list[list[int]]:
    """Brute force: cut each text's tokens, put [CLS] and [SEP] around, drop short tails of longer texts."""
    windows = []
    for text in texts:
        ids = tokens(tokenizer, text)
        for start in range(0, len(ids), length - 2):
            window = [tokenizer.cls_token_id, *ids[start : start + length - 2], tokenizer.sep_token_id]
            if start == 0 or len(window) >= SHORTEST:
                windows.append(window)
    return windows


@pytest.mark.parametrize("length", [8, LENGTH, 64])
def test_every_token_is_in_its_place(
    tokenizer: PreTrainedTokenizerFast, texts: list[str], tmp_path: Path, length: int
) -> None:
    windows = write_windows(tmp_path / "tokens", iter(texts), tokenizer, length)
    found = [windows[i].tolist() for i in range(len(windows))]
    assert found == expected(tokenizer, texts, length)
    assert windows[0].dtype == np.int64
    assert max(map(len, found)) <= length
    lost = sum(len(tokens(tokenizer, text)) for text in texts) - sum(len(window) - 2 for window in found)
    assert (
        lost <= sum(1 for text in texts if len(tokens(tokenizer, text)) > length - 2) * (SHORTEST - 3)
        or length < SHORTEST
    )


def test_written_windows_are_used_as_they_are(
    tokenizer: PreTrainedTokenizerFast, texts: list[str], tmp_path: Path
) -> None:
    first = write_windows(tmp_path, texts, tokenizer, LENGTH)

    def unread() -> Iterator[str]:
        raise AssertionError("the texts were read again")
        yield ""

    as_cut = tokenizer.backend_tokenizer.truncation
    tokenizer.backend_tokenizer.no_truncation()
    again = write_windows(tmp_path, unread(), tokenizer, LENGTH)
    assert tokenizer.backend_tokenizer.truncation == as_cut  # saved with the model, whether or not a kill was between
    assert len(again) == len(first) == len(Windows(tmp_path))
    assert all(np.array_equal(again[i], first[i]) for i in range(len(first)))


def test_what_a_kill_left_is_written_anew(tokenizer: PreTrainedTokenizerFast, texts: list[str], tmp_path: Path) -> None:
    def killed() -> Iterator[str]:
        yield from texts * 300
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_windows(tmp_path, killed(), tokenizer, LENGTH)
    assert not any(tmp_path.iterdir())
    windows = write_windows(tmp_path, texts, tokenizer, LENGTH)
    assert [windows[i].tolist() for i in range(len(windows))] == expected(tokenizer, texts, LENGTH)


def test_a_corpus_larger_than_a_batch_is_cut_in_order(
    tokenizer: PreTrainedTokenizerFast, toy_texts: list[str], tmp_path: Path
) -> None:
    texts = toy_texts * 8
    windows = write_windows(tmp_path, texts, tokenizer, 64)
    assert len(windows) == len(texts) == 2400
    assert [windows[i].tolist() for i in (0, 999, 1000, 2399)] == [
        tokenizer(texts[i])["input_ids"] for i in (0, 999, 1000, 2399)
    ]


@pytest.mark.parametrize("texts", [[], ["", "  "]])
def test_a_corpus_without_text_is_refused(tokenizer: PreTrainedTokenizerFast, tmp_path: Path, texts: list[str]) -> None:
    with pytest.raises(DataError):
        write_windows(tmp_path, texts, tokenizer, LENGTH)
    assert not any(tmp_path.iterdir())


TERMS = ["fox", "foxes", "the", "books", "owl", "reads", "##s", "in", "a", "old"]


FINDERS: dict[str, Callable[[PreTrainedTokenizerFast], TermFinder | None]] = {
    "plain": lambda tokenizer: None,
    "words": lambda tokenizer: WordFinder(TERMS, tokenizer, "words"),
    "whitespace": lambda tokenizer: WordFinder(TERMS, tokenizer, "whitespace"),
    "spans": lambda tokenizer: SpanFinder(TERMS, tokenizer),
}


@pytest.fixture
def repeated_texts(toy_texts: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(windows, "TOKENIZED_TEXTS", 20)
    some = [*islice(cycle(toy_texts), 170)]
    return [*some[:50], "", "  ", " ".join(some[:9]), "Ünïcode \U0001f98a fox\u2003books", *some[50:]]


def listed(found: Iterator[Any]) -> list[Any]:
    return [(list(map(int, ids)), None if words is None else words.tolist()) for ids, words in found]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_workers")
@pytest.mark.parametrize(
    ("kind", "family"),
    [("plain", "unigram"), ("words", "wordpiece"), ("whitespace", "byte-level"), ("spans", "byte-level")],
)
def test_windows_cut_in_worker_processes_equal_windows_cut_in_one(
    kind: str, family: str, tokenizers: dict[str, PreTrainedTokenizerFast], repeated_texts: list[str]
) -> None:
    tokenizer = tokenizers[family]
    alone, together = FINDERS[kind](tokenizer), FINDERS[kind](tokenizer)
    expected = listed(cut_texts(repeated_texts, Cutter(tokenizer, 24, alone), workers=1))
    read: list[str] = []
    stream = (read.append(text) or text for text in repeated_texts)
    found = cut_texts(stream, Cutter(tokenizer, 24, together), here=2, workers=2)
    first = next(found)
    assert len(read) <= 60  # nothing is read before it is needed
    assert listed(chain([first], found)) == expected
    if alone is not None and together is not None:
        assert together.passed_over == alone.passed_over
        assert alone.passed_over > 0 or kind != "spans"


def test_a_short_corpus_starts_no_process(
    tokenizer: PreTrainedTokenizerFast, repeated_texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(windows, "worker_pool")
    expected = listed(cut_texts(repeated_texts, Cutter(tokenizer, 24), workers=1))
    assert listed(cut_texts(repeated_texts, Cutter(tokenizer, 24), workers=2)) == expected
    assert listed(cut_texts(repeated_texts, Cutter(tokenizer, 24), here=1, workers=1)) == expected


@pytest.mark.slow
@pytest.mark.usefixtures("quick_workers")
def test_a_worker_that_dies_is_an_error_and_no_worker_stays(
    tokenizer: PreTrainedTokenizerFast, repeated_texts: list[str]
) -> None:
    def killing() -> Iterator[str]:
        for number, text in enumerate(repeated_texts):
            if number == 100:
                for worker in active_children():  # one that lived on could cut the rest before it is noticed
                    worker.kill()
            yield text

    with pytest.raises(LostProcessError):
        list(cut_texts(killing(), Cutter(tokenizer, 24), here=1, workers=2))
    assert not active_children()


@pytest.mark.usefixtures("quick_workers")
def test_a_corpus_that_cannot_be_read_leaves_no_worker(
    tokenizer: PreTrainedTokenizerFast, repeated_texts: list[str]
) -> None:
    def broken() -> Iterator[str]:
        yield from repeated_texts[:100]
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(cut_texts(broken(), Cutter(tokenizer, 24), here=1, workers=2))
    assert not active_children()
    found = cut_texts(repeated_texts, Cutter(tokenizer, 24), here=1, workers=2)
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert not active_children()


SCRIPT = """
import sys, time
from multiprocessing import active_children
from vocable.training.pretraining import windows
from transformers import AutoTokenizer
print("begun", flush=True)
windows.TOKENIZED_TEXTS = 20
texts = (text for text in ["the old fox reads books"] * 10_000)
found = windows.cut_texts(texts, windows.Cutter(AutoTokenizer.from_pretrained(sys.argv[1]), 24), here=1, workers=2)
for _ in range(41):
    next(found)
print(*[child.pid for child in active_children()], flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_a_script_runs_once_and_its_workers_end_when_it_is_killed(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    for name in ("queue.py", "tokenizers.py"):  # no modules of a worker
        (tmp_path / name).write_text("raise SystemExit('not this one')", encoding="utf-8")
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    script = tmp_path / "scripts" / "script.py"
    script.parent.mkdir()
    script.write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, str(script), str(tmp_path / "tokenizer")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "begun\n"
        workers = [int(number) for number in running.stdout.readline().split()]
        running.kill()
        assert running.stdout.read() == ""
    assert len(workers) == 2
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{worker}/exe").exists() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_tokenizer_that_a_worker_cannot_import_stays_here(
    repeated_texts: list[str], tokenizers: dict[str, PreTrainedTokenizerFast], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(windows, "worker_pool")

    class Own(PreTrainedTokenizerFast):
        pass

    own = Own(tokenizer_object=tokenizers["wordpiece"].backend_tokenizer)
    cutter = Cutter(own, 24)
    assert listed(cut_texts(repeated_texts, cutter, here=1, workers=2)) == listed(
        cut_texts(repeated_texts, cutter, workers=1)
    )


def test_white_space_is_that_of_python() -> None:
    assert [chr(code) for code in WHITE] == [chr(code) for code in range(0x110000) if chr(code).isspace()]
