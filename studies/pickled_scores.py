"""Scores of a teacher in a pickle, `scores[query][document]`, as the Hub's msmarco-hard-negatives has them.

Python's pickle runs any code that a file asks for. Here the file's instructions are read one by one: numbers, ids and
dictionaries are made, everything else is refused. One hundred and sixty million scores are held as 8 bytes each.
"""

from __future__ import annotations

import gzip
import math
import re
import struct
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from vocable.core.progress import track
from vocable.errors import DataError

PIECE = 1 << 20  # bytes read at once
MOST = 1 << 21  # values between two instructions that put them into a dictionary
PAIRS = re.compile(rb"(?:J.{4}G.{8})+", re.DOTALL)  # an int of 32 bits and a float, nearly all of such a file
LINE = re.compile(rb"[-+0-9.eE]+L?")  # a number in digits
PAIR = np.dtype([("J", "u1"), ("id", "<i4"), ("G", "u1"), ("score", ">f8")])
HIGHEST_PROTOCOL = 5

Value: TypeAlias = "int | float | str | dict[Any, Any] | None"  # None: a mark
Pairs: TypeAlias = dict[Any, Any]


class PickledScores:
    """Scores by query: a function from the id of a query to the scores by the ids of documents."""

    def __init__(self, path: Path) -> None:
        """Read a file, perhaps compressed (.gz); raises `DataError`, in one line, for anything but such scores."""
        self._places: dict[int, tuple[int, int]] = {}
        self._ids, self._scores = array("i"), array("f")
        for query, scores in track(read_pickled_scores(path), "scores"):
            start = len(self._ids)
            try:
                self._ids.extend(map(int, scores))
                self._scores.extend(scores.values())
                number = int(query)
            except (OverflowError, ValueError) as error:
                raise DataError(f"query {query!r}: ids are numbers below 2^31: {error}", source=str(path)) from error
            if number in self._places:
                raise DataError(f"query {query!r} is there twice", source=str(path))
            self._places[number] = start, len(self._ids)

    def __len__(self) -> int:
        return len(self._places)

    def __call__(self, query: str) -> dict[str, float]:
        start, end = self._places.get(int(query), (0, 0)) if query.isdecimal() else (0, 0)
        return dict(zip(map(str, self._ids[start:end]), self._scores[start:end], strict=True))


def read_pickled_scores(path: Path) -> Iterator[tuple[int | str, dict[int | str, float]]]:
    """Yield each query with its scores, as the file is read.

    Raises `DataError` for a file that cannot be read, is cut short or has anything but numbers, ids and dictionaries.
    """
    try:
        packed = path.suffix == ".gz"
        with path.open("rb") as plain, gzip.GzipFile(fileobj=plain) if packed else nullcontext(plain) as file:
            machine = _Machine(file)  # type: ignore[arg-type]
            while not machine.stopped:
                machine.step()
                yield from machine.found()
    except _WrongError as error:
        raise DataError(f"{error}: only numbers, ids and dictionaries of them are read", source=str(path)) from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be read: {error}", source=str(path)) from error


class _WrongError(ValueError):
    """An instruction that is not carried out."""


class _Machine:
    """The stack of values that instructions build. The dictionary of all queries is emptied while it is filled."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._buffer, self._at, self._before = file, b"", 0, 0
        self._stack: list[Value] = []
        self._marks: list[int] = []
        self._memo: dict[int, int | str | None] = {}  # None: a dictionary, which may not come twice
        self._outer: Pairs | None = None
        self._frame_end = 0
        self.stopped = False

    def step(self) -> None:
        """Carry out one instruction, or many that only push pairs of an id and a score."""
        if match := PAIRS.match(self._buffer, self._at):
            pairs = np.frombuffer(match[0], PAIR)
            if not np.isfinite(pairs["score"]).all():
                raise self._wrong("a score that is not finite")
            values: list[Value] = [None] * (2 * len(pairs))
            values[::2], values[1::2] = pairs["id"].tolist(), pairs["score"].tolist()
            self._push(*values)
            self._at = match.end()
            return
        code = self._take(1)
        handler = HANDLERS.get(code)
        if handler is None:
            raise self._wrong(f"instruction {code!r}")
        handler(self)

    def found(self) -> Iterator[tuple[int | str, dict[int | str, float]]]:
        """Yield the queries that are complete."""
        if self._outer:
            yield from self._outer.items()
            self._outer.clear()

    def proto(self) -> None:
        if (number := self._take(1)[0]) > HIGHEST_PROTOCOL:
            raise self._wrong(f"protocol {number}")

    def stop(self) -> None:
        if self._marks or len(self._stack) != 1 or self._stack[0] is not self._outer or self._outer is None:
            raise self._wrong("no dictionary at the end")
        if (left := self._frame_end - self._before - self._at) > 0:
            self._take(min(left, PIECE))
        self.stopped = True

    def frame(self) -> None:
        self._frame_end = self.number("<Q") + self._before + self._at

    def unpack(self, form: str) -> None:
        [value] = struct.unpack(form, self._take(struct.calcsize(form)))
        self._number(value)

    def line(self, kind: Callable[[bytes], int | float]) -> None:
        text = self._line()
        if text in (b"00", b"01"):  # False and True
            raise self._wrong("a truth value")
        if not LINE.fullmatch(text):
            raise self._wrong("a malformed number")
        try:
            self._number(kind(text.removesuffix(b"L")))
        except ValueError as error:
            raise self._wrong("a malformed number") from error

    def long(self) -> None:
        self._number(int.from_bytes(self._take(self._take(1)[0]), "little", signed=True))

    def text(self, form: str) -> None:
        [size] = struct.unpack(form, self._take(struct.calcsize(form)))
        if size > 100:
            raise self._wrong(f"an id of {size} bytes")
        try:
            self._push(self._take(size).decode())
        except UnicodeDecodeError as error:
            raise self._wrong("an id that is not UTF-8") from error

    def text_line(self) -> None:
        try:
            self._push(self._line().decode("raw-unicode-escape"))
        except UnicodeDecodeError as error:
            raise self._wrong("a malformed id") from error

    def dictionary(self) -> None:
        pairs: Pairs = {}
        if self._outer is None:
            if self._stack:
                raise self._wrong("values before the dictionary")
            self._outer = pairs
        self._push(pairs)

    def mark(self) -> None:
        self._marks.append(len(self._stack))
        if len(self._marks) > 4:
            raise self._wrong("dictionaries within dictionaries")

    def marked_dictionary(self) -> None:
        items = self._items()
        self.dictionary()
        self._put(items)

    def item(self) -> None:
        if len(self._stack) < 2:
            raise self._wrong("no value to put")
        items = self._stack[-2:]
        del self._stack[-2:]
        self._put(items)

    def items(self) -> None:
        self._put(self._items())

    def remember(self, number: int | None = None) -> None:
        if not self._stack:
            raise self._wrong("nothing to remember")
        top = self._stack[-1]
        if isinstance(top, int | str):
            self._memo[len(self._memo) if number is None else number] = top
        else:
            self._memo[len(self._memo) if number is None else number] = None

    def recall(self, number: int) -> None:
        if (value := self._memo.get(number)) is None:
            raise self._wrong("a value that is not there, or a dictionary twice")
        self._push(value)

    def number(self, form: str) -> int:
        number: int = struct.unpack(form, self._take(struct.calcsize(form)))[0]
        return number

    def line_number(self) -> int:
        text = self._line()
        if not text.isdigit():
            raise self._wrong("a malformed number")
        return int(text)

    def _number(self, value: float) -> None:
        if isinstance(value, float) and not math.isfinite(value):
            raise self._wrong("a score that is not finite")
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise self._wrong("a number beyond 64 bits")
        self._push(value)

    def _push(self, *values: Value) -> None:
        self._stack.extend(values)
        if len(self._stack) > MOST:
            raise self._wrong("too many values at once")

    def _items(self) -> list[Value]:
        if not self._marks:
            raise self._wrong("no mark")
        start = self._marks.pop()
        if start > len(self._stack):
            raise self._wrong("a mark beyond the values")
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _put(self, items: list[Value]) -> None:
        """Put keys and values into the dictionary on the stack: scores of a query, or dictionaries of all queries."""
        target = self._stack[-1] if self._stack else None
        if not isinstance(target, dict) or len(items) % 2 or (self._marks and self._marks[-1] >= len(self._stack)):
            raise self._wrong("no dictionary for pairs of key and value")
        keys, values = items[::2], items[1::2]
        kinds = (dict,) if target is self._outer else (int, float)
        if any(type(key) not in (int, str) for key in keys) or any(type(value) not in kinds for value in values):
            raise self._wrong("scores[query][document] is something else")
        if any(value is target for value in values):
            raise self._wrong("a dictionary within itself")
        target.update(zip(keys, values, strict=True))

    def _line(self) -> bytes:
        text = bytearray()
        while (byte := self._take(1)) != b"\n":
            text += byte
            if len(text) > 100:
                raise self._wrong("a long line")
        return bytes(text)

    def _take(self, count: int) -> bytes:
        """Return the next bytes, and keep a piece of the file in the buffer."""
        while len(self._buffer) - self._at < count:
            more = self._file.read(PIECE)
            if not more:
                raise self._wrong("cut short")
            self._before += self._at
            self._buffer, self._at = self._buffer[self._at :] + more, 0
        taken = self._buffer[self._at : self._at + count]
        self._at += count
        return taken

    def _wrong(self, what: str) -> _WrongError:
        return _WrongError(f"{what}, at byte {self._before + self._at:,}")


HANDLERS: dict[bytes, Callable[[_Machine], None]] = {
    b"\x80": _Machine.proto,
    b"\x95": _Machine.frame,
    b".": _Machine.stop,
    b"}": _Machine.dictionary,
    b"(": _Machine.mark,
    b"d": _Machine.marked_dictionary,
    b"s": _Machine.item,
    b"u": _Machine.items,
    b"K": lambda machine: machine.unpack("<B"),
    b"M": lambda machine: machine.unpack("<H"),
    b"J": lambda machine: machine.unpack("<i"),
    b"I": lambda machine: machine.line(int),
    b"L": lambda machine: machine.line(int),
    b"\x8a": _Machine.long,
    b"G": lambda machine: machine.unpack(">d"),
    b"F": lambda machine: machine.line(float),
    b"V": _Machine.text_line,
    b"X": lambda machine: machine.text("<I"),
    b"\x8c": lambda machine: machine.text("<B"),
    b"\x94": _Machine.remember,
    b"q": lambda machine: machine.remember(machine.number("<B")),
    b"r": lambda machine: machine.remember(machine.number("<I")),
    b"p": lambda machine: machine.remember(machine.line_number()),
    b"h": lambda machine: machine.recall(machine.number("<B")),
    b"j": lambda machine: machine.recall(machine.number("<I")),
    b"g": lambda machine: machine.recall(machine.line_number()),
}
