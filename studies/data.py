"""Make the data that recipes and studies read and that no other command makes.

    python -m studies.data                        # what can be made, from where, and which exhibits need it
    python -m studies.data nano-beir -o DATA

Files and folders appear when they are complete; what is there already is not made again. The data sets are read from
the Hub, row by row.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from datasets import load_dataset

from vocable.core.progress import progress
from vocable.core.storage import replacing, replacing_folder
from vocable.core.tables import Table
from vocable.encoding.hub import first_line
from vocable.errors import ArgumentError, DataError, VocableError

Row = Mapping[str, Any]

# fmt: off
NANO = (
    "NanoArguAna", "NanoClimateFEVER", "NanoDBPedia", "NanoFEVER", "NanoFiQA2018", "NanoHotpotQA", "NanoMSMARCO",
    "NanoNFCorpus", "NanoNQ", "NanoQuoraRetrieval", "NanoSCIDOCS", "NanoSciFact", "NanoTouche2020",
)
# fmt: on
CHEMISTRY = {"ChemHotpotQA": "BASF-AI/ChemHotpotQARetrieval", "ChemNQ": "BASF-AI/ChemNQRetrieval"}
CHEMICAL_TEXTS = "BASF-AI/dolma-chem-only-query-generated"
CHEMICAL_PAIRS = 200_000
BOOKCORPUS = "hf://datasets/bookcorpus/bookcorpus@refs%2Fconvert%2Fparquet/plain_text/train/*.parquet"


def rows(
    name: str, columns: Sequence[str], config: str | None = None, split: str = "train", **options: Any
) -> Iterator[Row]:
    """Yield the rows of a data set of the Hub.

    Raises:
        DataError: it cannot be reached, or it has other columns.
    """
    with _in_one_line(name):
        for row in load_dataset(name, config, split=split, streaming=True, **options):
            if missing := [column for column in columns if column not in row]:
                raise DataError(f"no column {missing[0]!r}: it has {', '.join(row)}", source=name)
            yield row


@contextmanager
def _in_one_line(name: str) -> Iterator[None]:
    """Turn the errors of the Hub's libraries into one line."""
    try:
        yield
    except VocableError:
        raise
    except Exception as error:  # of huggingface_hub, datasets, httpx and fsspec, which share no class
        raise DataError(f"{type(error).__name__}: {first_line(error)}", source=name) from error


def _write_lines(lines: Iterable[Row], path: Path) -> None:
    """Write rows as JSON lines, compressed if the name says so."""
    with progress(path.name) as advance, replacing(path) as file:
        opened = gzip.GzipFile(fileobj=file, mode="wb", mtime=0) if path.suffix == ".gz" else file
        for line in lines:
            opened.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            advance(1)
        if opened is not file:
            opened.close()


def _write_collection(folder: Path, corpus: Iterable[Row], queries: Iterable[Row], judgments: Iterable[Row]) -> None:
    """Write a BEIR folder."""
    with replacing_folder(folder) as work:
        for name, rows in (("corpus", corpus), ("queries", queries)):
            lines = ({"_id": str(row["_id"]), "title": row.get("title") or "", "text": row["text"]} for row in rows)
            _write_lines(lines, work / f"{name}.jsonl")
        judged = [f"{row['query-id']}\t{row['corpus-id']}\t{int(row.get('score', 1))}" for row in judgments]
        text = "\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n"
        (work / "qrels.tsv").write_text(text, encoding="utf-8")


def _nano_beir(data: Path) -> None:
    for name in NANO:
        if not (data / name).exists():
            _collection(data / name, f"zeta-alpha-ai/{name}", "qrels", "train")


def _chemistry(data: Path) -> None:
    for name, source in CHEMISTRY.items():
        if not (data / name).exists():
            _collection(data / name, source, "default", "test")


def _collection(folder: Path, source: str, judgments: str, split: str) -> None:
    """Write a data set of the Hub with the configurations corpus and queries, and one of judgments."""
    texts = ("_id", "text")
    _write_collection(
        folder,
        rows(source, texts, "corpus", split),
        rows(source, texts, "queries", split),
        rows(source, ("query-id", "corpus-id"), judgments, split),
    )


def _paragraphs(texts: Iterable[str]) -> Iterator[Row]:
    return ({"text": part.strip()} for text in texts for part in text.split("\n\n") if part.strip())


def _wikipedia(data: Path) -> None:
    articles = rows("wikimedia/wikipedia", ("text",), "20231101.en")
    _write_lines(_paragraphs(row["text"] for row in articles), data / "wikipedia.jsonl.gz")


def _bookcorpus(data: Path) -> None:
    lines = rows("parquet", ("text",), data_files=BOOKCORPUS)
    _write_lines(({"text": row["text"]} for row in lines), data / "bookcorpus.jsonl.gz")


def _chemical_texts(data: Path) -> None:
    texts = rows(CHEMICAL_TEXTS, ("text",))
    _write_lines(({"text": row["text"]} for row in texts), data / "dolma-chem.jsonl.gz")


def _chemical_pairs(data: Path) -> None:
    pairs = islice(rows(CHEMICAL_TEXTS, ("query", "text")), CHEMICAL_PAIRS)
    lines = ({"query": row["query"], "positive": row["text"]} for row in pairs)
    _write_lines(lines, data / "chem-pairs.jsonl.gz")


def _natural_questions(data: Path) -> None:
    pairs = rows("sentence-transformers/natural-questions", ("query", "answer"))
    _write_lines(({"query": row["query"], "positive": row["answer"]} for row in pairs), data / "nq-pairs.jsonl.gz")


class Made(NamedTuple):
    """Data to make: a function of the data folder, the files or folders that it writes, and where they come from."""

    make: Callable[[Path], None]
    writes: Sequence[str]
    origin: str
    licence: str
    needed_by: str


# Licences as the pages of the data sets state them.
MADE = {
    "nano-beir": Made(_nano_beir, NANO, "zeta-alpha-ai/Nano*", "CC BY 4.0", "mlm_head_rescaling figure-2"),
    "wikipedia": Made(
        _wikipedia, ["wikipedia.jsonl.gz"], "wikimedia/wikipedia", "CC BY-SA 3.0", "vocabulary_transfer, most tables"
    ),
    "bookcorpus": Made(
        _bookcorpus, ["bookcorpus.jsonl.gz"], "bookcorpus/bookcorpus", "not stated", "vocabulary_transfer, most tables"
    ),
    "chem-texts": Made(
        _chemical_texts, ["dolma-chem.jsonl.gz"], CHEMICAL_TEXTS, "ODC-By", "vocabulary_transfer table-9"
    ),
    "chem-pairs": Made(
        _chemical_pairs, ["chem-pairs.jsonl.gz"], CHEMICAL_TEXTS, "ODC-By", "vocabulary_transfer table-9"
    ),
    "chem-collections": Made(
        _chemistry, [*CHEMISTRY], ", ".join(CHEMISTRY.values()), "CC BY-SA", "vocabulary_transfer table-9"
    ),
    "nq-pairs": Made(
        _natural_questions,
        ["nq-pairs.jsonl.gz"],
        "sentence-transformers/natural-questions",
        "CC BY-SA 3.0",
        "wacky_weights, the row v2-nq",
    ),
}


def make(name: str, data: Path) -> list[Path]:
    """Make the data `name` in a folder unless it is there, and return its files or folders.

    Raises:
        ArgumentError: no such data.
        DataError: a data set cannot be reached, or it has other columns.
    """
    if name not in MADE:
        raise ArgumentError(f"no data {name!r}: choose from {', '.join(MADE)}")
    paths = [data / path for path in MADE[name].writes]
    if not all(path.exists() for path in paths):
        data.mkdir(parents=True, exist_ok=True)
        MADE[name].make(data)
    return paths


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m studies.data", description="Data of recipes and studies")
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to make; without a name, all are listed")
    parser.add_argument("-o", "--output", type=Path, default=Path(), help="folder of the data; default: here")
    options = parser.parse_args(arguments)
    if not options.names:
        listed = [[name, ", ".join(one.writes), one.origin, one.licence, one.needed_by] for name, one in MADE.items()]
        print(Table("", ["name", "files or folders", "from the Hub", "licence", "needed by"], listed))
        return 0
    try:
        for name in options.names:
            for path in make(name, options.output):
                print(path)
    except (VocableError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
