"""The study of `vocable tune`: people's queries before and after a tuning that sees only the documents.

    python -m studies.tuning DATA --only perl --minutes 30 -o OUT

DATA has collections as folders in BEIR's layout. Each is tuned on its corpus.jsonl; queries and judgments are read
afterwards. A repeated call reads the finished collections and goes on with the others. Below the output folder:

    tuned/NAME       the result of `tune`
    measured/NAME    the measurements
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import vocable as vo
from studies.common import silence_libraries
from studies.toy_models import make_backbone, make_tokenizer
from studies.tuning.results import MEASURE, RECALL, Measured, StudyResults, change
from vocable.core.fingerprint import fingerprint
from vocable.core.storage import finished, read_record, replacing_folder, write_record
from vocable.data import pydocs
from vocable.errors import ArgumentError, DataError, VocableError
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.quality import Evaluation
from vocable.evaluation.significance import ComparedEvaluations
from vocable.tuning.plan import Tuned
from vocable.tuning.recipe import DOCUMENT_LENGTH
from vocable.tuning.tune import tune

MODEL = "vocable-mini"
FILES = ("corpus.jsonl", "queries.jsonl", "qrels.tsv")  # of a collection
MEASURED, RESULTS = "measured.json", "results.json"
TOY_DOCUMENTS, TOY_QUERIES, TOY_WORDS = 320, 20, (16, 40)  # words of a document, fewest and most

logger = logging.getLogger("vocable.studies")


def study(
    data: Path, output: Path, *, only: Sequence[str] = (), minutes: float = 60.0, model: str = MODEL
) -> StudyResults:
    """Tune and measure each collection of a folder, and write results.json.

    A collection that fails is reported, and the others go on.

    Args:
        data: folder of the collections.
        output: folder of the results; the finished collections in it are read.
        only: names of collections; all of them by default.
        minutes: time of each tuning, at most.
        model: the model to tune.

    Raises:
        ArgumentError: no collection of this name.
        DataError: no collections.
    """
    measured, failed = list[Measured](), dict[str, str]()
    for folder in collections_in(data, only):
        try:
            measured.append(measure(folder, output, minutes=minutes, model=model))
        except (VocableError, OSError, RuntimeError) as error:  # the last ones: a full disk, a GPU out of memory
            logger.warning("%s: %s", folder.name, error)
            failed[folder.name] = str(error)
    results = StudyResults(model, measured, failed)
    output.mkdir(parents=True, exist_ok=True)
    write_record(output / RESULTS, asdict(results))
    return results


def collections_in(data: Path, only: Sequence[str] = ()) -> list[Path]:
    """Return the folders of the collections in the order of their names; errors as in `study`."""
    folders = {place.parent.name: place.parent for place in sorted(data.glob(f"*/{FILES[0]}"))}
    if not folders:
        raise DataError(f"no collections, which are folders with {', '.join(FILES)}", source=str(data))
    for name in only:
        if name not in folders:
            raise ArgumentError(f"only: no {name!r} in {data}: choose from {', '.join(folders)}")
    return [folder for name, folder in folders.items() if not only or name in only]


def measure(folder: Path, output: Path, *, minutes: float, model: str) -> Measured:
    """Tune on the documents of a collection, then measure the models before and after on its queries."""
    kept = output / "measured" / folder.name
    settings = {"model": model, "inputs": fingerprint(model, f"beir:{folder}")}
    if finished(kept, settings):
        return read_record(kept / MEASURED, Measured)
    tuned = tune(model, folder / FILES[0], output / "tuned" / folder.name, minutes=minutes)
    assert isinstance(tuned, Tuned)
    dataset = load_dataset(f"beir:{folder}")  # not before: the tuning knows nothing of it
    start, end = _evaluations(model, dataset), _evaluations(str(tuned.output), dataset)
    measured = Measured(
        collection=folder.name,
        documents=len(dataset.documents),
        bm25=start["bm25"].values[MEASURE],
        alone=change(start["sparse"], end["sparse"], MEASURE),
        hybrid=change(start["search"], end["search"], MEASURE),
        recall=change(start["sparse"], end["sparse"], RECALL),
        steps=tuned.steps,
        minutes=tuned.minutes,
    )
    with replacing_folder(kept, settings) as work:
        write_record(work / MEASURED, asdict(measured))
    return measured


def _evaluations(model: str, dataset: Dataset) -> dict[str, Evaluation]:
    """Measure the search of an index by a model, and each kind of vectors alone."""
    with vo.index(model, dataset.documents) as collection:
        results = vo.evaluate(collection, dataset, [MEASURE, RECALL], time_queries=0)
    assert isinstance(results, ComparedEvaluations)
    return {evaluation.name.partition(" ")[0]: evaluation for evaluation in results.evaluations}


def make_toys(folder: Path) -> tuple[Path, str]:
    """Make a collection of Python's documentation and a random model of its words; return their places."""
    fewest, most = TOY_WORDS
    long = [entry for entry in pydocs.documents() if len(entry.text.split()) >= fewest][:TOY_DOCUMENTS]
    texts = [f"{entry.title} {' '.join(entry.text.split()[:most])}" for entry in long]
    data, model = folder / "data", folder / "model"
    if not data.exists():
        with replacing_folder(data / "toy") as work:
            documents, queries, judgments = (work / name for name in FILES)
            documents.write_text("".join(_line(f"d{row}", text) for row, text in enumerate(texts)), encoding="utf-8")
            asked = [" ".join(text.split()[:fewest]) for text in texts[:TOY_QUERIES]]
            queries.write_text("".join(_line(f"q{row}", text) for row, text in enumerate(asked)), encoding="utf-8")
            rows = "".join(f"q{row}\td{row}\t1\n" for row in range(TOY_QUERIES))
            judgments.write_text(f"query-id\tcorpus-id\tscore\n{rows}", encoding="utf-8")
    if not model.exists():
        with replacing_folder(model) as work:
            tokenizer = make_tokenizer("wordpiece", texts)
            tokenizer.model_max_length = DOCUMENT_LENGTH
            make_backbone("bert", tokenizer, texts[:16], work, positions=DOCUMENT_LENGTH)
    return data, str(model)


def _line(identifier: str, text: str) -> str:
    return json.dumps({"_id": identifier, "text": text}) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if a collection failed, 2 for a user error, which is printed as one line."""
    parser = argparse.ArgumentParser(prog="python -m studies.tuning", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", type=Path, nargs="?", help="folder of collections in BEIR's layout")
    parser.add_argument("-o", "--output", type=Path, help="folder of the tunings and the results")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a collection; may be repeated")
    parser.add_argument("--minutes", type=float, default=60.0, metavar="M", help="time of a tuning, at most")
    parser.add_argument("--toy", action="store_true", help="tune a random model on one small collection, made in OUT")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    silence_libraries()
    try:
        return _run(options)
    except VocableError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2


def _run(options: argparse.Namespace) -> int:
    if options.toy and options.data:
        raise ArgumentError("--toy makes its data: leave out DATA")
    if options.data is None and not options.toy:
        raise ArgumentError("DATA: name the folder of the collections, or give --toy")
    if options.output is None:
        raise ArgumentError("--output: name a folder")
    data, model = make_toys(options.output / "toys") if options.toy else (options.data, MODEL)
    results = study(data, options.output, only=options.only, minutes=options.minutes, model=model)
    print(json.dumps(asdict(results), indent=2) if options.json else results)
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
