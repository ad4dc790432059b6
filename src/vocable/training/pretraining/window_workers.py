"""Processes that cut a long corpus into token windows; a short one is cut here, before they would have started.

A worker is this module run as a program: it gets texts on its standard input, a batch at a time, and returns windows on
its standard output. It is neither a fork, which would inherit locks of the threads that PyTorch and the tokenizers have
begun, nor does it read the program that began it, and it ends when that does.

A message is its length as 8 bytes, then JSON, or for windows a JSON line and the bytes of int32 arrays.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from vocable.errors import LostProcessError
from vocable.training.pretraining.windows import Cut, SpanAlignment, WordAlignment, batches, cut_batch

HERE = 20  # batches that are cut before there are workers: some seconds, as many as a worker takes to start
MOST = 16  # workers, of some 0.5 GB each

Process = subprocess.Popen[bytes]


def cut_in_processes(
    texts: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    length: int,
    places: WordAlignment | SpanAlignment | None = None,
    *,
    here: int = HERE,
    workers: int | None = None,
) -> Iterator[Cut]:
    """As `vocable.training.pretraining.windows.cut`, to the last token, with as many workers as there are cores.

    Where no words are looked for, two or three cores are as busy without: the tokenizer has threads of its own.

    Raises:
        LostProcessError: a worker has ended.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    plain = type(tokenizer).__module__.startswith("transformers.") and tokenizer._auto_class is None  # a worker has it
    fewest = 4 if places is None else 2
    count = min(workers or (cores if cores >= fewest else 1), MOST) if plain else 1
    parts = batches(texts)
    for batch in parts if count < 2 else islice(parts, here):
        yield from cut_batch(batch, tokenizer, length, places)
    if (first := next(parts, None)) is not None:
        with _started(count, tokenizer, length, places) as started:
            yield from _in_order(chain([first], parts), started, places)


@contextmanager
def _started(
    count: int, tokenizer: PreTrainedTokenizerBase, length: int, places: WordAlignment | SpanAlignment | None
) -> Iterator[list[Process]]:
    """Workers that cut as the arguments say; they end with the block."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        tokenizer.save_pretrained(folder)
        settings: dict[str, Any] = {"length": length}
        if places is not None:
            settings |= {"terms": places.terms, "splitter": getattr(places, "splitter", None)}
        Path(folder, "cut.json").write_text(json.dumps(settings), encoding="utf-8")
        environment = os.environ | {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(part or os.getcwd() for part in sys.path)
        command = [sys.executable, "-P", "-m", __name__, folder]  # what lies in this folder is none of its modules
        # In groups of their own, so that Ctrl-C is for whoever began them.
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "process_group": 0}
        started = []
        for _ in range(count):
            started.append(subprocess.Popen(command, env=environment, **pipes))
            stack.callback(_end, started[-1])
        yield started


def _end(worker: Process) -> None:
    """Kill a worker, which may be at work for somebody who has given up, and give back what it took."""
    worker.kill()
    for stream in (worker.stdin, worker.stdout):
        with suppress(OSError):  # of what it no longer reads
            assert stream is not None
            stream.close()
    worker.wait()


def _in_order(
    parts: Iterable[Sequence[str]], workers: Sequence[Process], places: WordAlignment | SpanAlignment | None
) -> Iterator[Cut]:
    """What the workers make of the batches, in their order; each has one at a time, and one more waits."""
    free: SimpleQueue[Process] = SimpleQueue()
    for worker in workers:
        free.put(worker)

    def asked(batch: Sequence[str]) -> tuple[list[Cut], int]:
        worker = free.get()
        try:
            assert worker.stdin is not None
            assert worker.stdout is not None
            _send(worker.stdin, json.dumps(batch).encode())
            return _unpacked(_received(worker.stdout))
        except (EOFError, MemoryError, OSError, OverflowError, ValueError) as error:  # or it said what is no answer
            raise LostProcessError(f"a process that cuts the corpus has ended ({worker.poll()}): {error}") from error
        finally:
            free.put(worker)

    with ThreadPoolExecutor(len(workers)) as pool:
        waiting: deque[Future[tuple[list[Cut], int]]] = deque()
        try:
            for batch in chain(parts, [None] * 2 * len(workers)):
                if batch is not None:
                    waiting.append(pool.submit(asked, batch))
                if waiting and (batch is None or len(waiting) >= 2 * len(workers)):
                    windows, passed_over = waiting.popleft().result()
                    if places is not None:
                        places.cut += passed_over
                    yield from windows
        except BaseException:  # nobody waits for what they are at
            for future in waiting:
                future.cancel()
            for worker in workers:
                worker.kill()
            raise


def _packed(windows: Sequence[Cut], passed_over: int) -> bytes:
    header = {"cut": passed_over, "lengths": [len(ids) for ids, _ in windows]}
    header["words"] = bool(windows) and windows[0][1] is not None
    arrays: list[Any] = [ids for ids, _ in windows] + [words for _, words in windows if words is not None]
    return json.dumps(header).encode() + b"\n" + b"".join(np.asarray(one, np.int32).tobytes() for one in arrays)


def _unpacked(message: bytes) -> tuple[list[Cut], int]:
    line, _, content = message.partition(b"\n")
    header, numbers = json.loads(line), np.frombuffer(content, np.int32)
    lengths = header["lengths"]
    arrays: list[NDArray[np.int32]] = np.split(numbers, np.cumsum(lengths * (1 + header["words"])))[:-1]
    words = arrays[len(lengths) :] if header["words"] else [None] * len(lengths)
    return list(zip(arrays, words, strict=False)), header["cut"]


def _send(stream: IO[bytes], message: bytes) -> None:
    stream.write(len(message).to_bytes(8, "big") + message)
    stream.flush()


def _received(stream: IO[bytes]) -> bytes:
    """The next message; `EOFError` where there is none."""
    head = stream.read(8)
    message = stream.read(int.from_bytes(head, "big")) if len(head) == 8 else b""
    if len(head) < 8 or len(message) < int.from_bytes(head, "big"):
        raise EOFError("it says no more")
    return message


def main() -> None:
    """Cut what comes on the standard input until it ends."""
    # Whatever else is printed or asked is no answer and gets none.
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    folder = Path(sys.argv[1])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    settings = json.loads((folder / "cut.json").read_bytes())
    places: WordAlignment | SpanAlignment | None = None
    if (terms := settings.get("terms")) is not None:
        name = settings["splitter"]
        places = SpanAlignment(terms, tokenizer) if name is None else WordAlignment(terms, tokenizer, name)
    while True:
        try:
            texts = json.loads(_received(questions))
        except EOFError:
            return
        before = 0 if places is None else places.cut
        windows = cut_batch(texts, tokenizer, settings["length"], places)
        _send(answers, _packed(windows, 0 if places is None else places.cut - before))


if __name__ == "__main__":
    main()
