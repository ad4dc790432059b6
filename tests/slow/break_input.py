"""The tables of `break.py`: malformed input of every kind, bad arguments of every option, models that are not whole.

Each row is (name, prepare, says, right): `prepare` is given an empty folder and returns a command and its stdin, `says`
has what a refusal names, and `right`, where success is possible at all, looks at what the command has done.
"""

from __future__ import annotations

import gzip
import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from break_toys import changed_commit
from safetensors.torch import load_file, save_file

from vocable.cli import COMMANDS
from vocable.cli.verbs import Parameter
from vocable.cli.words import options_of
from vocable.core.arrays import load_arrays, write_arrays
from vocable.core.hints import Values
from vocable.engines.segment import SEGMENT

Prepared = tuple[list[object], bytes]
Row = tuple[str, Callable[[Path], Prepared], tuple[str, ...], Callable[[Any], bool] | None]

GOOD = [b'{"_id": "d1", "text": "A list."}', b'{"_id": "d2", "text": "A set."}']
BIG = 10**30


def lines(*extra: bytes, end: bytes = b"\n") -> bytes:
    """Two good documents and more lines."""
    return end.join([*GOOD, *extra, b""])


def counted(texts: int) -> Callable[[Any], bool]:
    """Return a check that a command printed this number of texts."""
    return lambda ran: json.loads(ran.out)["texts"] == texts


# Of a corpus: the third line, or the whole file, what a refusal says, and how many texts are right instead.
LINES: dict[str, tuple[bytes, tuple[str, ...], int | None]] = {
    "no id": (b'{"text": "x"}', (":3", "id"), None),
    "a null id": (b'{"_id": null, "text": "x"}', (":3", "id"), None),
    "a bool id": (b'{"_id": true, "text": "x"}', (":3", "id"), None),
    "a float id": (b'{"_id": 1.5, "text": "x"}', (":3", "id"), None),
    "a list id": (b'{"_id": ["a"], "text": "x"}', (":3", "id"), None),
    "an empty id": (b'{"_id": "", "text": "x"}', (":3", "id"), None),
    "a blank id": (b'{"_id": " \\t", "text": "x"}', (":3", "id"), None),
    "an id with a tab": (b'{"_id": "a\\tb", "text": "x"}', (":3", "id"), None),
    "an id with a line end": (b'{"_id": "a\\nb", "text": "x"}', (":3", "id"), None),
    "an id of an integer": (b'{"_id": 7, "text": "x"}', (), 3),
    "an id twice": (b'{"_id": "d1", "text": "x"}', (":3", "d1"), None),
    "a line twice": (GOOD[0], (), 2),
    "a field 900 deep": (b'{"_id": "d3", "text": "x", "f": ' + b"[" * 900 + b"]" * 900 + b"}", (":3", "deep"), None),
    "a list that Python printed": (b'{"_id": "d3", "text": "x", "f": "[\'a\', None]"}', (":3", "Python list"), None),
    "a text that is a number": (b'{"_id": "d3", "text": 3}', (":3", "text"), None),
    "a text that is a list": (b'{"_id": "d3", "text": ["x"]}', (":3", "text"), None),
    "no text": (b'{"_id": "d3"}', (":3", "text"), None),
    "a null text": (b'{"_id": "d3", "text": null}', (":3", "text"), None),
    "an empty text": (b'{"_id": "d3", "text": ""}', (":3", "text"), None),
    "a title alone": (b'{"_id": "d3", "title": "x"}', (), 3),
    "a title that is a number": (b'{"_id": "d3", "title": 3, "text": "x"}', (":3", "title"), None),
    "half a line": (b'{"_id": "d3", "te', (":3", "JSON"), None),
    "an array": (b'["d3", "x"]', (":3", "list"), None),
    "a string": (b'"d3"', (":3", "str"), None),
    "a number": (b"3", (":3", "int"), None),
    "null": (b"null", (":3", "None"), None),
    "two objects": (b'{"_id": "d3", "text": "x"} {"_id": "d4", "text": "x"}', (":3", "JSON"), None),
    "single quotes": (b"{'_id': 'd3', 'text': 'x'}", (":3", "JSON"), None),
    "half of a surrogate pair": (b'{"_id": "d3", "text": "\\ud800"}', (":3", "surrogate"), None),
    "a whole surrogate pair": (b'{"_id": "d3", "text": "\\ud83d\\ude00 x"}', (), 3),
    "latin-1": ('{"_id": "d3", "text": "é"}'.encode("latin-1"), (":3", "UTF-8"), None),
    "a NUL character": (b'{"_id": "d3", "text": "a\\u0000b"}', (), 3),
    "a raw NUL byte": (b'{"_id": "d3", "text": "a\0b"}', (":3",), None),
    "brackets 100,000 deep": (b"[" * 100_000, (":3", "JSON"), None),
    "an object 100,000 deep": (b'{"a":' * 100_000, (":3", "JSON"), None),
    "an id of 5,000 digits": (b'{"_id": ' + b"9" * 5000 + b', "text": "x"}', (":3",), None),
    "a key twice": (b'{"_id": "d3", "text": "x", "text": "y"}', (), 3),
    "a blank line": (b"  ", (), 2),
    "control characters": (b'{"_id": "d3", "text": "\\u001b]0;x\\u0007 \\u202e"}', (), 3),
    "a text of 2 MB": (b'{"_id": "d3", "text": "' + b"word " * 400_000 + b'"}', (), 3),
    "a line of 70 MB": (b'{"_id": "d3", "text": "' + b"x" * 70_000_000 + b'"}', (":3",), None),
    "one word of 1 MB": (b'{"_id": "d3", "text": "' + b"x" * 1_000_000 + b'"}', (), 3),
    "only marks": (b'{"_id": "d3", "text": "?!"}', (), 3),
}


def _parquet(**columns: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue())


ROWS = {"_id": ["d1", "d2"], "text": ["A list.", "A set."]}
FILES: dict[str, tuple[str, bytes, tuple[str, ...], int | None]] = {
    "an empty file": (".jsonl", b"", (), 0),
    "blank lines only": (".jsonl", b"\n\n \n", (), 0),
    "a byte-order mark": (".jsonl", b"\xef\xbb\xbf" + lines(), (), 2),
    "Windows' line ends": (".jsonl", lines(end=b"\r\n"), (), 2),
    "no last line end": (".jsonl", lines().rstrip(), (), 2),
    "UTF-16": (".jsonl", lines().decode().encode("utf-16"), ("c.jsonl:1",), None),
    "a JSON array": (".json", b"[" + b",\n".join(GOOD) + b"]", ("c.json",), None),
    "binary": (".jsonl", bytes(range(256)) * 9, ("c.jsonl:1",), None),
    "an unknown extension": (".doc", lines(), ("c.doc",), None),
    "no extension": ("", lines(), ("c",), None),
    "gz": (".jsonl.gz", gzip.compress(lines()), (), 2),
    "gz, cut short": (".jsonl.gz", gzip.compress(lines() * 99)[:-9], ("c.jsonl.gz",), None),
    "gz, not gz": (".jsonl.gz", lines(), ("c.jsonl.gz",), None),
    "gz, two members": (".jsonl.gz", gzip.compress(GOOD[0] + b"\n") + gzip.compress(GOOD[1] + b"\n"), (), 2),
    "gz, bytes after": (".jsonl.gz", gzip.compress(lines()) + b"junk", ("c.jsonl.gz",), None),
    "gz, a flipped byte": (
        ".jsonl.gz",
        gzip.compress(lines())[:-6] + b"\0\0" + gzip.compress(lines())[-4:],
        ("c.jsonl.gz",),
        None,
    ),
    "gz, a line of 300 MB": (
        ".jsonl.gz",
        gzip.compress(b'{"_id": "d1", "text": "' + b"x" * 300_000_000, 1),
        ("c.jsonl.gz:1",),
        None,
    ),
    "Parquet": (".parquet", _parquet(**ROWS), (), 2),
    "Parquet, cut short": (".parquet", _parquet(**ROWS)[:-30], ("c.parquet",), None),
    "Parquet, not Parquet": (".parquet", lines(), ("c.parquet",), None),
    "Parquet, no text": (".parquet", _parquet(_id=["d1"]), ("c.parquet", "text"), None),
    "Parquet, numbers as texts": (".parquet", _parquet(_id=["d1"], text=[1]), ("c.parquet:1", "text"), None),
    "Parquet, a null": (".parquet", _parquet(_id=["d1", None], text=["x", "y"]), ("c.parquet:2", "id"), None),
    "Parquet, no rows": (".parquet", _parquet(_id=pa.array([], pa.string()), text=pa.array([], pa.string())), (), 0),
    "Parquet, ids as numbers": (".parquet", _parquet(_id=[1, 2], text=["x", "y"]), (), 2),
    "Parquet, an id twice": (".parquet", _parquet(_id=[1, 1], text=["x", "y"]), ("c.parquet:2",), None),
    "tsv": (".tsv", b"d1\tA list.\nd2\tA set.\n", (), 2),
    "tsv, one field": (".tsv", b"d1\tA list.\nd2\n", ("c.tsv:2",), None),
    "tsv, nine fields": (".tsv", b"d1\tA list.\n" + b"x\t" * 8 + b"x\n", ("c.tsv:2",), None),
    "tsv, an empty text": (".tsv", b"d1\tA list.\nd2\t\n", ("c.tsv:2",), None),
    "tsv, an id twice": (".tsv", b"d1\tA list.\nd1\tA set.\n", ("c.tsv:2",), None),
    "tsv, a header": (".tsv", b"id\ttext\nd1\tA list.\n", (), 1),
    "txt": (".txt", b"A list.\nA set.\n", (), 2),
    "txt, latin-1": (".txt", b"A list.\n\xe9\n", ("c.txt:2", "UTF-8"), None),
}

EXAMPLES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "no query": (b'{"positive": "x"}', (":2", "query")),
    "no positive": (b'{"query": "x"}', (":2", "positive")),
    "an empty query": (b'{"query": "", "positive": "x"}', (":2", "query")),
    "negatives that are a number": (b'{"query": "x", "positive": "y", "negatives": 3}', (":2", "negatives")),
    "a negative that is a number": (b'{"query": "x", "positive": "y", "negatives": [3]}', (":2", "negative")),
    "negatives that Python printed": (b'{"query": "x", "positive": "y", "negatives": "[\'z\']"}', (":2", "negatives")),
    "an empty negative": (b'{"query": "x", "positive": "y", "negatives": [""]}', (":2", "negative")),
    "too few scores": (b'{"query": "x", "positive": "y", "negatives": ["z"], "scores": [1]}', (":2", "scores")),
    "a score of text": (b'{"query": "x", "positive": "y", "scores": ["1"]}', (":2", "score")),
    "NaN as a score": (b'{"query": "x", "positive": "y", "scores": [NaN]}', (":2", "score")),
    "an infinite score": (b'{"query": "x", "positive": "y", "scores": [1e999]}', (":2", "score")),
    "a score of 400 digits": (b'{"query": "x", "positive": "y", "scores": [' + b"9" * 400 + b"]}", (":2", "score")),
    "a bool as a score": (b'{"query": "x", "positive": "y", "scores": [true]}', (":2", "score")),
}

JUDGMENTS: dict[str, tuple[bytes, tuple[str, ...], bool]] = {
    "good": (b"q0\td0\t1", (), True),
    "two fields": (b"q0\td0", (":2",), False),
    "five fields": (b"q0\td0\t1\t1\t1", (":2",), False),
    "no number": (b"q0\td0\tyes", (":2", "relevance"), False),
    "a fraction": (b"q0\td0\t0.5", (":2", "relevance"), False),
    "NaN": (b"q0\td0\tnan", (":2", "relevance"), False),
    "beyond int32": (b"q0\td0\t4294967297", (":2", "relevance"), False),
    "underscores": (b"q0\td0\t1_0", (":2", "relevance"), False),
    "twice": (b"q0\td0\t1\nq0\td0\t0", (":3", "d0"), False),
    "twice the same": (b"q0\td0\t1\nq0\td0\t1", (), True),
    "a comment": (b"# by hand\nq0\td0\t1", (), True),
    "an empty query": (b"\td0\t1", (":2",), False),
    "queries that are not there": (b"q99\td0\t1", (), False),
    "none": (b"", (), False),
}

RUNS: dict[str, tuple[bytes, tuple[str, ...], bool]] = {
    "good": (b"q0 Q0 d0 1 2.5 x", (), True),
    "five fields": (b"q0 Q0 d0 1 2.5", (":1",), False),
    "words after the tag": (b"q0 Q0 d0 1 2.5 x y", (), True),
    "an id with a blank": (b"q0 Q0 d 0 1 2.5 x", (":1",), False),
    "a comment": (b"# by hand\nq0 Q0 d0 1 2.5 x", (), True),
    "a hit twice": (b"q0 Q0 d0 1 2.5 x\nq0 Q0 d0 1 2.5 x", (), True),
    "no number": (b"q0 Q0 d0 1 high x", (":1", "score"), False),
    "NaN": (b"q0 Q0 d0 1 nan x", (":1", "score"), False),
    "infinite": (b"q0 Q0 d0 1 inf x", (":1", "score"), False),
    "underscores": (b"q0 Q0 d0 1 1_0 x", (":1", "score"), False),
    "a document twice": (b"q0 Q0 d0 1 2.5 x\nq0 Q0 d0 2 1.5 x", ("d0",), False),
    "other queries": (b"q99 Q0 d0 1 2.5 x", (), False),
    "empty": (b"", (), False),
    "latin-1": (b"q0 Q0 d\xe9 1 2.5 x", (":1",), False),
}

WORDS: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "empty": (b"", ()),
    "blank lines": (b"\n \n", ()),
    "latin-1": (b"list\n\xe9\n", (":2",)),
    "a word twice": (b"list\nlist\n", ("line 2", "list")),
    "special characters alone": (b"\x1b[2J\n", ()),
}

RECIPES: dict[str, tuple[str, tuple[str, ...]]] = {
    "not YAML": ("model: [", ("r.yaml",)),
    "a list": ("- model", ("r.yaml",)),
    "empty": ("", ("r.yaml",)),
    "a tab": ("model:\n\tx: 1", ("r.yaml",)),
    "an unknown key": (
        "model: M\nstepz: 1\ndata: {examples: [P]}\ntraining: {batch_size: 8, steps: 1}",
        ("stepz", ":2"),
    ),
    "an unknown inner key": (
        "model: M\ndata: {examples: [P]}\ntraining: {batch_size: 8, steps: 1, stepz: 2}",
        ("stepz",),
    ),
    "a key twice": ("model: M\nmodel: M\ndata: {examples: [P]}\ntraining: {batch_size: 8, steps: 1}", ("model", ":2")),
    "an inner key twice": (
        "model: M\ndata: {examples: [P]}\ntraining: {batch_size: 8, steps: 1, steps: 2}",
        ("steps",),
    ),
    "steps of text": ("model: M\ndata: {examples: [P]}\ntraining: {steps: many}", ("training.steps",)),
    "steps of 0": ("model: M\ndata: {examples: [P]}\ntraining: {steps: 0}", ("training.steps",)),
    "a rate of NaN": (
        "model: M\ndata: {examples: [P]}\ntraining: {batch_size: 8, steps: 1, learning_rate: .nan}",
        ("learning_rate",),
    ),
    "an infinite rate": (
        "model: M\ndata: {examples: [P]}\ntraining: {batch_size: 8, steps: 1, learning_rate: .inf}",
        ("learning_rate",),
    ),
    "an infinite weight": (
        "model: M\ndata: {examples: [P]}\ntraining: {steps: 1, regularizers: {document: {weight: .inf}}}",
        ("weight",),
    ),
    "an object of Python": ("model: !!python/object/apply:os.system [ls]", ("r.yaml",)),
    "no examples": ("model: M\ndata: {examples: []}\ntraining: {batch_size: 8, steps: 1}", ("examples",)),
    "examples that are not there": (
        "model: M\ndata: {examples: [nowhere.jsonl]}\ntraining: {batch_size: 8, steps: 1}",
        ("nowhere",),
    ),
    "a seed that is too large": (f"model: M\nseed: {BIG}\ndata: {{examples: [P]}}\ntraining: {{steps: 1}}", ("seed",)),
    "a negative seed": ("model: M\nseed: -1\ndata: {examples: [P]}\ntraining: {batch_size: 8, steps: 1}", ("seed",)),
    "an alias bomb": (
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)),
        ("r.yaml",),
    ),
    "nested 5,000 deep": ("model: " + "[" * 5000, ("r.yaml",)),
    "batches of 1": ("model: M\ndata: {examples: [P]}\ntraining: {steps: 1, batch_size: 1}", ("batch_size",)),
    "a batch beyond the examples": (
        "model: M\ndata: {examples: [P]}\ntraining: {steps: 1, batch_size: 5000}",
        ("batch_size",),
    ),
    "a length beyond the model": (
        "model: M\ndata: {examples: [P]}\ntraining: {batch_size: 8, steps: 1, document_length: 99999}",
        (),
    ),
    "an unknown measure": (
        "model: M\ndata: {examples: [P]}\ntraining: {steps: 1}\nevaluation: {dataset: 'pydocs:#test', measures: [x@y]}",
        ("x@y",),
    ),
}


def input_cases(toys: Any) -> Iterator[Row]:
    """Malformed files of every kind that a command reads."""

    def corpus(suffix: str, content: bytes) -> Callable[[Path], Prepared]:
        def prepare(folder: Path) -> Prepared:
            path = folder / f"c{suffix}"
            path.write_bytes(content)
            return ["encode", toys.model, path, "--json", "-o", folder / "out"], b""

        return prepare

    for name, (line, says, texts) in LINES.items():
        yield f"corpus: {name}", corpus(".jsonl", lines(line)), says, None if texts is None else counted(texts)
        if texts is None:  # the same from stdin, and tolerated
            reading: list[object] = ["encode", toys.model, "-", "--json"]
            yield f"stdin: {name}", _with_output(reading, lines(line)), ("3", *says[1:]), None
            yield f"tolerated: {name}", _with_output([*reading, "--skip-bad", 1], lines(line)), (), counted(2)
    for name, (suffix, content, says, texts) in FILES.items():
        yield f"file: {name}", corpus(suffix, content), says, None if texts is None else counted(texts)
    yield "file: /dev/null", _with_output(["encode", toys.model, "/dev/null"]), ("/dev/null",), None
    yield "file: /dev/zero", _with_output(["encode", toys.model, "/dev/zero"]), ("/dev/zero",), None
    yield "file: a folder", _with_output(["encode", toys.model, toys.folder]), (str(toys.folder),), None
    yield "file: not there", _with_output(["encode", toys.model, "nowhere.jsonl"]), ("nowhere.jsonl",), None
    yield "file: no such scheme", _with_output(["encode", toys.model, "ftp:x"]), ("ftp:x",), None
    yield "stdin: nothing", _with_output(["encode", toys.model, "-", "--json"]), (), counted(0)

    def written(name: str, content: bytes, *command: object) -> Callable[[Path], Prepared]:
        def prepare(folder: Path) -> Prepared:
            (folder / name).write_bytes(content)
            return [
                folder / name if word == "FILE" else folder / "out" if word == "OUT" else word for word in command
            ], b""

        return prepare

    for name, (example, says) in EXAMPLES.items():
        content = b'{"query": "a", "positive": "b", "negatives": ["c"]}\n' + example + b"\n"
        yield (
            f"examples: {name}",
            written("e.jsonl", content, "teacher-scores", toys.model, "FILE", "-o", "OUT"),
            says,
            None,
        )
    for name, (content, says, good) in RUNS.items():
        command: tuple[object, ...] = ("evaluate", "FILE", "--dataset", f"beir:{toys.beir}", "--json")
        yield f"run: {name}", written("r.run", content + b"\n", *command), says, (lambda ran: True) if good else None
    for name, (content, says) in WORDS.items():
        command = ("expand-vocabulary", toys.model, "--words", "FILE", "-o", "OUT")
        yield f"words: {name}", written("w.txt", content, *command), says, None
    for name, (line, says, texts) in LINES.items():
        if texts is None and b"title" not in line and b'"f"' not in line:  # a query has no title and no fields
            command = ("search", toys.folder / "index", "--queries", "FILE", "--json")
            yield f"queries: {name}", written("q.jsonl", lines(line), *command), says, None
    for name, (text, says) in RECIPES.items():
        content = text.replace("M\n", f"{toys.model}\n").replace("[P]", f"[{toys.pairs}]").encode()
        right = (lambda ran: True) if name == "a length beyond the model" else None  # which reads what it can
        yield f"recipe: {name}", written("r.yaml", content, "train", "FILE", "-o", "OUT"), says, right

    def judged(content: bytes) -> Callable[[Path], Prepared]:
        def prepare(folder: Path) -> Prepared:
            shutil.copytree(toys.beir, folder / "beir")
            (folder / "beir" / "qrels" / "test.tsv").write_bytes(b"query-id\tcorpus-id\tscore\n" + content + b"\n")
            return ["evaluate", toys.model, "--dataset", f"beir:{folder / 'beir'}", "--json"], b""

        return prepare

    for name, (content, says, good) in JUDGMENTS.items():
        yield f"judgments: {name}", judged(content), says, (lambda ran: True) if good else None
    for name, content in {
        "not JSON": b"{",
        "a number": b"3",
        "empty": b"",
        "another": b'[{"a": 1}]',
        "a wrong type": b'[{"name": 1, "values": [], "per_query": 3}]',
    }.items():
        yield f"compare: {name}", written("v.json", content, "compare", "FILE"), ("v.json",), None
    for name, query in {
        "bytes that are no UTF-8": b"\xe9\xff\n",
        "a NUL": b"a\0b\n",
        "1 MB": b"list " * 200_000,
    }.items():
        right = None if b"\xe9" in query else lambda ran: ran.out != ""
        yield (
            f"a query of {name}",
            _asked(toys, query),
            (),
            right,
        )


def _asked(toys: Any, query: bytes) -> Callable[[Path], Prepared]:
    return lambda folder: (["search", toys.folder / "index", "-", "--json"], query)


def removed(*paths: Path) -> None:
    for path in paths:
        path.unlink()


def _with_output(command: list[object], stdin: bytes = b"") -> Callable[[Path], Prepared]:
    return lambda folder: ([*command, "-o", folder / "out"], stdin)


def argument_cases(toys: Any) -> Iterator[Row]:
    """Each option of each command with values that it cannot have, and some that are very large."""
    valid = {
        **toys.writers,
        "search": ["search", toys.folder / "index", "a list"],
        "explain": ["explain", toys.model, "a list", "the list of lists"],
        "compare": ["compare", toys.folder / "values.json"],
        "inspect": ["inspect", toys.model, "--texts", toys.corpus],
        "logits": ["analyze-logits", toys.model, toys.corpus],
        "term-weights": ["analyze-weights", toys.folder / "vectors"],
        "postings": ["analyze-postings", toys.folder / "vectors"],
    }
    commands = {str(command[0]): command for command in valid.values()}
    for name, command in commands.items():
        for option in COMMANDS[name].parameters.values():
            if option.name in COMMANDS[name].words or bool in option.kinds or option.name == "output":
                continue
            flag = options_of(option)[-1]
            given = [word for word in command if word != flag]
            if flag in command:
                given.remove(command[command.index(flag) + 1])
            output = name in {str(one[0]) for one in toys.writers.values()}
            for value, allowed in _values(option):
                prepared = _argument(given, flag, value, output)
                yield f"{name} {flag} {value[:20]}", prepared, (), (lambda ran: True) if allowed else None


def _values(option: Parameter) -> Iterator[tuple[str, bool]]:
    """Values of an option, and whether they may be accepted."""
    kinds = option.items or option.kinds
    allowed = Values.of(option.hint)
    allowed = allowed and (allowed.items or allowed)
    if str not in kinds and allowed and allowed.words:
        yield from [("x", False), ("", False)]
    elif str not in kinds and float in kinds:
        yield from [(value, False) for value in ("x", "nan", "inf", "-inf", "1e999", "")]
        yield "1e300", True
    elif str not in kinds and int in kinds:
        yield from [(value, False) for value in ("x", "1.5", "", "nan", str(-BIG))]
        if option.name not in ("steps", "save_every"):
            yield str(BIG), True
    elif option.name != "device":
        yield "", False
        yield "\ud800", False
    for sign, limit in allowed.limits if allowed else ():
        yield str(limit + {"ge": -1, "gt": 0, "le": 1, "lt": 0}[sign]), False


def _argument(command: list[object], flag: str, value: str, output: bool) -> Callable[[Path], Prepared]:
    return lambda folder: ([*command, flag, value, *(["-o", folder / "out"] if output else [])], b"")


def model_cases(toys: Any) -> Iterator[Row]:
    """Checkpoints and indexes that are not whole, or made to harm."""

    def changed(change: Callable[[Path], object], *verb: object) -> Callable[[Path], Prepared]:
        def prepare(folder: Path) -> Prepared:
            shutil.copytree(toys.model, folder / "m")
            change(folder / "m")
            return [*(folder / "m" if word == "M" else word for word in verb), "-o", folder / "out"], b""

        return prepare

    def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], object]:
        def apply(folder: Path) -> object:
            weights = load_file(folder / "model.safetensors")
            change(weights)
            return save_file(weights, folder / "model.safetensors", {"format": "pt"})

        return apply

    def config(**values: object) -> Callable[[Path], object]:
        def apply(folder: Path) -> object:
            path = folder / "config.json"
            return path.write_text(json.dumps(json.loads(path.read_text()) | values))

        return apply

    first = next(
        name for name in load_file(toys.model / "model.safetensors") if "layer.0" in name and "dense.weight" in name
    )
    changes: dict[str, Callable[[Path], object]] = {
        "no weights": lambda folder: removed(folder / "model.safetensors"),
        "weights cut short": lambda folder: _cut(folder / "model.safetensors"),
        "an empty file of weights": lambda folder: (folder / "model.safetensors").write_bytes(b""),
        "pickled weights alone": lambda folder: _pickled(folder),
        "a tensor missing": tensors(lambda weights: weights.pop(first)),
        "a layer too many": tensors(lambda weights: weights.update({first.replace("r.0", "r.2"): torch.ones(3)})),
        "a tensor of another shape": tensors(
            lambda weights: weights.update({first: weights[first][:, :-1].contiguous()})
        ),
        "a NaN": tensors(lambda weights: weights[first].view(-1)[:1].fill_(math.nan)),
        "an infinite weight": tensors(lambda weights: weights[first].view(-1)[:1].fill_(math.inf)),
        "no configuration": lambda folder: removed(folder / "config.json"),
        "a configuration that is not JSON": lambda folder: (folder / "config.json").write_text("{"),
        "a configuration that is a list": lambda folder: (folder / "config.json").write_text("[]"),
        "an unknown kind of model": config(model_type="nonsense"),
        "10,000,000 layers": config(num_hidden_layers=10**7),
        "a hidden size of 10^9": config(hidden_size=10**9),
        "a hidden size of text": config(hidden_size="wide"),
        "0 layers": config(num_hidden_layers=0),
        "a smaller vocabulary": config(vocab_size=10),
        "a larger vocabulary": config(vocab_size=10**6),
        "code of its own": config(auto_map={"AutoModelForMaskedLM": "evil.Model"}, model_type="evil"),
        "no tokenizer": lambda folder: removed(*folder.glob("*token*")),
        "a tokenizer that is not JSON": lambda folder: (folder / "tokenizer.json").write_text("{"),
        "an empty tokenizer": lambda folder: (folder / "tokenizer.json").write_text("{}"),
        "a tokenizer of more tokens": _more_tokens,
        "an empty folder": lambda folder: removed(*folder.iterdir()),
    }
    verbs: dict[str, tuple[object, ...]] = {
        "encode": ("encode", "M", toys.corpus),
        "rescale": ("rescale", "M", "--factor", 2),
        "calibrate": ("calibrate", "M", toys.corpus, "--activation-rate", 0.1),
    }
    for name, change in changes.items():
        for verb, words in verbs.items():
            yield f"{verb}: {name}", changed(change, *words), ("/m",), None
    for factor in ("0", "-1", "1e300", "1e-300", "nan", "inf", "many"):
        yield f"rescale by {factor}", _with_output(["rescale", toys.model, "--factor", factor]), ("factor",), None
    for shift in ("1e300", "nan", "-inf", "1e39"):
        yield (
            f"calibrate by {shift}",
            _with_output(["calibrate", toys.model, toys.corpus, f"--shift={shift}"]),
            ("shift",),
            None,
        )
    train = ["train", toys.recipe, "--override", "training.steps=12", "--override", "training.batch_size=8"]
    yield (
        "train at a rate of 1e30",
        _with_output([*train, "--override", "training.learning_rate=1e30"]),
        ("learning_rate",),
        None,
    )
    yield (
        "a teacher without a head",
        _with_output(["teacher-scores", toys.model, toys.pairs, "--kind", "cross"]),
        ("model",),
        None,
    )

    def crafted(change: Callable[[dict[str, np.ndarray], dict[str, Any]], object]) -> Callable[[Path], Prepared]:
        def prepare(folder: Path) -> Prepared:
            shutil.copytree(toys.folder / "index", folder / "index")
            [segment] = (folder / "index").glob("*.segment")
            mapped, header = load_arrays(segment, SEGMENT)
            arrays = {name: np.array(array) for name, array in mapped.items()}
            header = {name: value for name, value in header.items() if name not in ("kind", "format", "crc32")}
            change(arrays, header)
            with segment.open("wb") as file:
                checksum = write_arrays(file, SEGMENT, arrays, header)
            changed_commit(folder / "index", lambda commit: commit["segments"][0].update(crc32=checksum))
            return ["search", folder / "index", "list of chapter 3", "--json"], b""

        return prepare

    def put(name: str, place: int, value: object) -> Callable[[dict[str, np.ndarray], dict[str, Any]], object]:
        return lambda arrays, header: arrays[name].__setitem__(place, value)

    crafts: dict[str, Callable[[dict[str, np.ndarray], dict[str, Any]], object]] = {
        "a document beyond the last": put("places", -1, 65_535),
        "a document twice in a list": lambda arrays, header: arrays["places"].__setitem__(slice(0, 2), 0),
        "a weight of NaN": put("weights", 0, np.nan),
        "an infinite weight": put("weights", 0, np.inf),
        "a negative weight": put("weights", 0, -1),
        "starts that fall": lambda arrays, header: arrays["starts"].__setitem__(3, arrays["starts"][4] + 1),
        "starts beyond the end": lambda arrays, header: arrays["starts"].__setitem__(-1, 10**9),
        "fewer terms": lambda arrays, header: header.update(shape=[header["shape"][0], header["shape"][1] - 1]),
        "more documents": lambda arrays, header: header.update(shape=[10**9, header["shape"][1]]),
        "ids that do not rise": lambda arrays, header: arrays["ids_bytes"].__setitem__(slice(0, 2), 255 - 128),
        "an id twice": lambda arrays, header: arrays["ids_bytes"].__setitem__(slice(2, 4), arrays["ids_bytes"][:2]),
        "fewer texts": lambda arrays, header: arrays.update(texts_offsets=arrays["texts_offsets"][:-1].copy()),
        "a word of a document beyond the last": put("word_places", -1, 65_535),
        "a negative length": put("word_lengths", 0, -1),
        "fewer lengths": lambda arrays, header: arrays.update(word_lengths=arrays["word_lengths"][:-1].copy()),
        "spaces that it lacks": lambda arrays, header: header.update(spaces=["sparse", "bm25", "dense"]),
        "spaces of another type": lambda arrays, header: header.update(spaces=3),
        "ids that are no UTF-8": lambda arrays, header: arrays["ids_bytes"].fill(255),
        "ids of another length": lambda arrays, header: arrays["ids_offsets"].__setitem__(1, 10**9),
        "another type": lambda arrays, header: arrays.update(places=arrays["places"].astype(np.float64)),
    }
    for name, craft in crafts.items():
        yield f"an index with {name}", crafted(craft), (".segment",), None


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def _more_tokens(folder: Path) -> None:
    path = folder / "tokenizer.json"
    described = json.loads(path.read_text())
    vocabulary = described["model"]["vocab"]
    vocabulary |= {f"extra{i}": len(vocabulary) + i for i in range(99)}
    path.write_text(json.dumps(described))
