"""The command line as tests call it, and a collection for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vocable.cli import main


def done(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What a command that succeeds prints on stdout; it says nothing on stderr."""
    capsys.readouterr()
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    # Libraries that were imported before show bars; a training says how well it did.
    said = (line for line in captured.err.split("\n") if "\r" not in line and "of a probe of training" not in line)
    assert (status, "".join(said)) == (0, "")
    return captured.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line on stderr of a command that ends with status 2; it prints nothing on stdout."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    [line] = [line for line in captured.err.splitlines() if "\r" not in line]
    return line


def write_beir(folder: Path, texts: list[str], queries: int, *, titles: bool = False) -> None:
    """A BEIR folder of `texts`; query i is the beginning of text 5 i, the one document that is relevant to it."""
    title = {i: {"title": f"chapter {i}"} if titles else {} for i in range(len(texts))}
    corpus = [{"_id": f"d{i}", **title[i], "text": text} for i, text in enumerate(texts)]
    asked = [{"_id": f"q{i}", "text": " ".join(texts[5 * i].split()[:4])} for i in range(queries)]
    for name, rows in (("corpus", corpus), ("queries", asked)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    judged = "".join(f"q{i}\td{5 * i}\t1\n" for i in range(queries))
    (folder / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}", encoding="utf-8")
