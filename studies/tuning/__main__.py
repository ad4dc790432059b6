"""The study of `vocable tune`: people's queries before and after a tuning that sees only the documents.

    python -m studies.tuning DATA --dry-run
    python -m studies.tuning DATA --only perl --minutes 30 -o OUT

DATA has collections as folders in BEIR's layout, for example from `python -m studies.tuning.collections`. Each is tuned
on its corpus.jsonl; queries and judgments are read afterwards. The trained model is measured even where `tune` keeps
the initial model: the recipe of the tuning makes it again. A repeated call reads the finished collections and goes on
with the others. Below the output folder:

    tuned/NAME       the result of `tune`, with its report
    trained/NAME     the trained model, where `tune` keeps the initial model
    measured/NAME    the measurements
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast

from sentence_transformers import SparseEncoder

from studies.common import silence_libraries
from studies.toy_models import make_backbone, make_tokenizer
from studies.tuning.gathered import Gathered, write
from studies.tuning.results import Measured, StudyResults, draw
from vocable.core.fingerprint import fingerprint
from vocable.core.html import Section, drawing, write_page
from vocable.core.storage import finished, read_record, replacing_folder, write_record
from vocable.data import Document, pydocs
from vocable.errors import ArgumentError, DataError, VocableError, require_extra
from vocable.evaluation.dataset import Dataset, load_dataset
from vocable.evaluation.quality import Retrieval, evaluate_run
from vocable.evaluation.retrieval import encode_dataset, retrieve, retrieve_lexically
from vocable.indexes.fusion import weighted
from vocable.torch_models.sparse_encoder import load_sparse_encoder
from vocable.training.train import train
from vocable.tuning.exam import EXAM_DEPTH, EXAM_MEASURE, EXAM_RECALL, ExamAnswers, change
from vocable.tuning.plan import Plan
from vocable.tuning.report import ALL_QUESTIONS, TuningReport
from vocable.tuning.settings import DOCUMENT_LENGTH
from vocable.tuning.tune import RECIPE_FILE, tune

MODEL = "vocable-mini"
FILES = ("corpus.jsonl", "queries.jsonl", "qrels.tsv")  # of a collection
MEASURED, RESULTS = "measured.json", "results.json"
FIGURE = "differences"
TOY_DOCUMENTS, TOY_QUERIES, TOY_WORDS = 320, 20, (16, 40)  # words of a document, fewest and most

logger = logging.getLogger("vocable.studies")


def study(
    data: Path, output: Path, *, only: Sequence[str] = (), minutes: float = 60.0, model: str = MODEL
) -> StudyResults:
    """Tune and measure each collection of a folder, and write results.json and the page index.html.

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
    require_extra("matplotlib", "figures")
    measured, failed = list[Measured](), dict[str, str]()
    for folder in collections_in(data, only):
        try:
            measured.append(measure(folder, output, minutes=minutes, model=model))
        except (VocableError, OSError, RuntimeError) as error:  # the last ones: a full disk, a GPU out of memory
            logger.warning("%s: %s", folder.name, error)
            failed[folder.name] = str(error)
    results = StudyResults(model, measured, failed)
    write_results(results, output)
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
    report = tune(model, folder / FILES[0], output / "tuned" / folder.name, minutes=minutes)
    assert isinstance(report, TuningReport)
    after = _trained(report, output / "trained" / folder.name)
    dataset = load_dataset(f"beir:{folder}")  # not before: the tuning knows nothing of it
    lexical = retrieve_lexically(dataset, k=EXAM_DEPTH)
    models = {"before": load_sparse_encoder(model), "after": after}
    answers = [_answer(measured_model, title, dataset, lexical) for title, measured_model in models.items()]
    bm25 = evaluate_run("bm25", lexical, dataset, [EXAM_MEASURE]).values[EXAM_MEASURE]
    measured = _measured(folder.name, report, bm25, answers)
    with replacing_folder(kept, settings) as work:
        write_record(work / MEASURED, asdict(measured))
    return measured


def _trained(report: TuningReport, place: Path) -> SparseEncoder:
    """Return the model that the training of a tuning made, which its recipe makes again where it was not kept."""
    if report.verdict == "better":
        return load_sparse_encoder(report.output)
    return cast(SparseEncoder, train(report.output / RECIPE_FILE, place))


def _answer(model: SparseEncoder, title: str, dataset: Dataset, lexical: Retrieval) -> ExamAnswers:
    """Evaluate people's queries by a model alone, and fused with BM25."""
    measures = [EXAM_MEASURE, EXAM_RECALL]
    alone = retrieve(encode_dataset(model, dataset, title=title), k=EXAM_DEPTH)
    hybrid = weighted([alone.ranking, lexical.ranking], [1, 1]).to_run(alone.query_ids)
    return ExamAnswers(
        evaluate_run("alone", alone, dataset, measures), evaluate_run("hybrid", hybrid, dataset, measures)
    )


def _measured(name: str, report: TuningReport, bm25: float, answers: Sequence[ExamAnswers]) -> Measured:
    start, end = answers
    queries = list(start.alone.per_query[EXAM_MEASURE])
    return Measured(
        collection=name,
        documents=report.plan.reading.documents,
        verdict=report.verdict,
        exam_alone=report.alone[ALL_QUESTIONS],
        exam_hybrid=report.hybrid[ALL_QUESTIONS],
        exam_kinds={kind: change.difference for kind, change in report.alone.items() if kind != ALL_QUESTIONS},
        bm25=bm25,
        alone=change(start.alone, end.alone, queries),
        hybrid=change(start.hybrid, end.hybrid, queries),
        recall=change(start.alone, end.alone, queries, EXAM_RECALL),
        steps=report.steps,
        minutes=report.minutes,
    )


def write_results(results: StudyResults, output: Path) -> None:
    """Write results.json, and index.html with the figure."""
    output.mkdir(parents=True, exist_ok=True)
    write_record(output / RESULTS, asdict(results))
    shows = "differences by collection with 95 % intervals; filled where the verdict was better"
    drawn = [drawing(draw(results), output, FIGURE, shows)] if results.collections else []
    write_page(output, f"Tuning of {results.model}", [Section("Collections", [*results.table(), *drawn])])


def plans(data: Path, only: Sequence[str], minutes: float, model: str = MODEL) -> Iterator[tuple[str, Plan]]:
    """Yield the name and the plan of each collection; errors as in `study` and `tune`."""
    for folder in collections_in(data, only):
        plan = tune(model, folder / FILES[0], folder.name, minutes=minutes, dry_run=True)
        assert isinstance(plan, Plan)
        yield folder.name, plan


def make_toys(folder: Path) -> tuple[Path, str]:
    """Make a collection of Python's documentation and a random model of its words; return their places."""
    fewest, most = TOY_WORDS
    long = [entry for entry in pydocs.documents() if len(entry.text.split()) >= fewest][:TOY_DOCUMENTS]
    documents = [
        Document(f"d{row}", " ".join(entry.text.split()[:most]), entry.title) for row, entry in enumerate(long)
    ]
    data, model = folder / "data", folder / "model"
    if not data.exists():
        gathered = Gathered({document.id: (document.title, document.text) for document in documents})
        for row, document in enumerate(documents[:TOY_QUERIES]):
            gathered.queries[f"q{row}"] = " ".join(document.full.split()[:fewest])
            gathered.relevant[f"q{row}"] = {document.id}
        write(gathered, data / "toy")
    if not model.exists():
        texts = [document.full for document in documents]
        with replacing_folder(model) as work:
            tokenizer = make_tokenizer("wordpiece", texts)
            tokenizer.model_max_length = DOCUMENT_LENGTH
            make_backbone("bert", tokenizer, texts[:16], work, positions=DOCUMENT_LENGTH)
    return data, str(model)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if a collection failed, 2 for a user error, which is printed as one line."""
    parser = argparse.ArgumentParser(prog="python -m studies.tuning", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", type=Path, nargs="?", help="folder of collections in BEIR's layout")
    parser.add_argument("-o", "--output", type=Path, help="folder of the tunings, the results and the page")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a collection; may be repeated")
    parser.add_argument("--minutes", type=float, default=60.0, metavar="M", help="time of a tuning, at most")
    parser.add_argument("--dry-run", action="store_true", help="print the plan of each tuning")
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
    if options.toy and (options.dry_run or options.data):
        raise ArgumentError("--toy makes its data: leave out DATA and --dry-run")
    if options.data is None and not options.toy:
        raise ArgumentError("DATA: name the folder of the collections, or give --toy")
    if options.output is None and not options.dry_run:
        raise ArgumentError("--output: name a folder, or only plan with --dry-run")
    if options.dry_run:
        planned = dict(plans(options.data, options.only, options.minutes))
        shown = {name: plan.to_json() for name, plan in planned.items()}
        lines = [f"{name}\n{plan}\n" for name, plan in planned.items()]
        print(json.dumps(shown, indent=2) if options.json else "\n".join(lines))
        return 0
    data, model = make_toys(options.output / "toys") if options.toy else (options.data, MODEL)
    results = study(data, options.output, only=options.only, minutes=options.minutes, model=model)
    print(json.dumps(asdict(results), indent=2) if options.json else results)
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
