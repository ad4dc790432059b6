"""The verb `tune`: a better model for the user's documents, or the plain answer that tuning does not pay.

The work folder OUTPUT.partial has the plan, the vectors of both models, the examples, the recipe and the trained model.
Each is made once; an interrupted command uses it again when repeated.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from functools import cached_property, partial
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Literal

import torch
import yaml
from annotated_types import Gt
from sentence_transformers import SparseEncoder
from typing_extensions import Unpack

from vocable import __version__
from vocable.core.fingerprint import settings_of
from vocable.core.progress import track
from vocable.core.steps import made_once, record_once
from vocable.core.storage import RECIPE as TRAINING_SETTINGS
from vocable.core.storage import finish, finished, read_record, replacing, resumable
from vocable.data import Document, Example, Qrel, Query, pydocs, read_corpus
from vocable.data.bad_lines import tolerant
from vocable.encoding.graph import refuse_exported
from vocable.encoding.hub import locate
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError, CollapseError, DataError, ModelError
from vocable.evaluation.cost import spread
from vocable.evaluation.dataset import Dataset
from vocable.evaluation.quality import Evaluation, evaluate_run
from vocable.evaluation.retrieval import Encoded, encode_dataset, retrieve, retrieve_lexically
from vocable.indexes.ranking import Ranking
from vocable.options import CountOrZero, checked
from vocable.torch_models.asymmetric import positions
from vocable.torch_models.fuse import splade_modules
from vocable.torch_models.sparse_encoder import load_sparse_encoder, save_model
from vocable.training.recipe_files import load_yaml, make_recipe
from vocable.training.train import train
from vocable.training_options import TuningSources
from vocable.tuning.exam import (
    EXAM_DEPTH,
    EXAM_MEASURE,
    AskedQueries,
    answer,
    change,
    check_count,
    distinct,
    make_exam,
    read_asked,
)
from vocable.tuning.examples import asked_examples, made_examples, written_examples
from vocable.tuning.plan import (
    FULL_BATCHES,
    Plan,
    check_vocabulary,
    make_plan,
    measure_speed,
    read_words,
    warn_of_few_steps,
)
from vocable.tuning.questions import Rarity
from vocable.tuning.recipe import EXAMPLES_FILE, Scale, measure_scale, recipe
from vocable.tuning.report import REPORT, TuningReport, changes, judge, write_report
from vocable.tuning.settings import DOCUMENT_LENGTH, QUERY_LENGTH, QUESTIONS_PER_STEP

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)

PLAN_FILE, RECIPE_FILE = "plan.json", "recipe.yaml"
BEFORE, AFTER, TRAINED, TUNED = "before", "after", "trained", "model"  # folders of the work
SCALE_TEXTS = 256  # examples whose scores are measured


@tolerant
@checked
def tune(
    model: str | Path,
    corpus: str | Path,
    output: str | Path,
    *,
    minutes: Annotated[float, Gt(0)] = 60.0,
    seed: CountOrZero = 0,
    device: str | None = None,
    dry_run: bool = False,
    skip_bad: CountOrZero = 0,
    **sources: Unpack[TuningSources],
) -> TuningReport | Plan:
    """Tune a model on your own documents, with proof.

    Both models answer questions about documents that the training does not use. The output is the better model; it is
    the initial model unless the exam shows a gain. An interrupted run resumes when repeated.

    Args:
        model: the name of a model with weights: vocable-mini, a folder, or a Hub id.
        corpus: source of the documents, such as a folder of Markdown files.
        output: output folder (written atomically): the model, index.html, report.json, recipe.yaml, examples.jsonl.
        minutes: minutes that the plan may take on this machine.
        seed: seed of questions and training.
        device: device of the models, such as cpu, cuda or cuda:1; by default the best available.
        dry_run: look at model, documents and machine, and end with the plan.
        skip_bad: number of malformed lines to skip; one more is an error.
        sources: the fields of `vocable.training_options.TuningSources`.

    Returns:
        the report; with `dry_run` the plan.

    Raises:
        ArgumentError: too few minutes, several processes, or the output exists and is something else.
        DataError: a source cannot be read, or has fewer than 300 distinct documents.
        ModelError: no such model, or its vocabulary does not fit the documents' language.
    """
    settings = settings_of(tune, locals(), without=("dry_run", "minutes"))
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ArgumentError("tune runs in one process: start it without torchrun, and train its recipe.yaml with it")
    if not dry_run and finished(output, settings):
        return read_record(Path(output) / REPORT, TuningReport)
    name, start = str(model), load_sparse_encoder(model, device=device)
    refuse_exported(start)
    for other in filter(None, (*sources.get("teacher", ()), sources.get("generator"))):
        locate(other)  # a wrong name is an error before the work
    documents, repeated = distinct(track(read_corpus(corpus), "documents"))
    if dry_run:
        return _plan(name, start, documents, repeated, minutes, sources)
    with resumable(output, settings) as work:
        began = perf_counter()
        plan = record_once(work / PLAN_FILE, Plan, lambda: _plan(name, start, documents, repeated, minutes, sources))
        for label, figure in plan.lines():
            logger.info("plan: %s: %s", label, figure)
        documents = [documents[row] for row in spread(len(documents), plan.collection)]
        asked = read_asked(sources, {document.id for document in documents})
        tuning = Tuning(name, start, documents, asked, work, plan, seed)
        trained = tuning.train(sources)
        report = tuning.compare(trained)
        origin = f"Made on {date.today():%Y-%m-%d} with vocable {__version__}."
        spent = (perf_counter() - began) / 60
        report = replace(report, corpus=str(corpus), minutes=spent, output=Path(output), made=origin)
        tuning.assemble(report, trained)
        finish(work, output, work / TUNED)
    return report


def _plan(
    name: str,
    model: SparseEncoder,
    documents: Sequence[Document],
    repeated: int,
    minutes: float,
    sources: TuningSources,
) -> Plan:
    check_count(documents)
    if (read := min(positions(transformer) for transformer, _ in splade_modules(model))) < DOCUMENT_LENGTH:
        raise ModelError(f"{name} reads at most {read} tokens of a text, and a tuning needs {DOCUMENT_LENGTH}")
    reading = read_words(documents, repeated, splade_modules(model)[-1][0].tokenizer)
    check_vocabulary(name, reading)
    if reading.questions * len(documents) < QUESTIONS_PER_STEP and not (
        sources.get("queries") or sources.get("generator")
    ):
        raise DataError(
            "titles and sentences of the documents are too short for questions: give --queries or --generator"
        )
    plan = make_plan(reading, measure_speed(model, documents), minutes)
    warn_of_few_steps(plan)
    return plan


class Tuning:
    """The stages of a tuning in a work folder; a stage is carried out once, and not repeated after an interruption."""

    def __init__(
        self,
        name: str,
        start: SparseEncoder,
        documents: Sequence[Document],
        asked: AskedQueries,
        work: Path,
        plan: Plan,
        seed: int,
    ) -> None:
        self.name, self.start, self.work, self.plan, self.seed = name, start, work, plan, seed
        self.device, self.log = str(start.device), asked.unjudged
        self.rarity = Rarity(document.full for document in documents)
        self.exam = make_exam(documents, self.rarity, seed, asked.judged, asked.judgments)
        self.lexical: Ranking = retrieve_lexically(self.exam.dataset, k=EXAM_DEPTH).ranking

    @cached_property
    def collection(self) -> Encoded:
        """The collection of the exam, encoded by the initial model."""
        return self._encoded(self.start, BEFORE)

    def _encoded(self, model: SparseEncoder, folder: str) -> Encoded:
        """Encode the collection of the exam; a folder of the work keeps the vectors."""
        return encode_dataset(model, self.exam.dataset, keep=self.work / folder, name=folder, title=f"model {folder}")

    def train(self, sources: TuningSources) -> SparseEncoder | None:
        """Train the model; return None if the training collapsed."""
        made_once(self.work / RECIPE_FILE, partial(self._write_recipe, sources))
        try:
            train(make_recipe(self.recipe | {"data_folder": str(self.work)}), self.work / TRAINED)
        except CollapseError as error:
            logger.warning("%s", error)
            return None
        return load_sparse_encoder(self.work / TRAINED, device=self.device)

    def _write_recipe(self, sources: TuningSources) -> None:
        """Write the examples and the recipe of the training."""
        examples = self._examples(sources.get("generator"))
        with replacing(self.work / EXAMPLES_FILE) as file:
            file.writelines(example.line for example in examples)
        steps = min(self.plan.steps, int(FULL_BATCHES * len(examples)) // QUESTIONS_PER_STEP)
        if steps < 1:
            raise DataError(f"the documents give {len(examples):,} questions, and a step needs {QUESTIONS_PER_STEP}")
        names = [_from_anywhere(name) for name in (self.name, *sources.get("teacher", ()))]
        dimensions, dtype = TextEncoder(self.start).dimensions, _stored_type(self.start)
        values = recipe(names[0], self._scale(examples), steps, names[1:], self.seed, dtype, dimensions)
        with replacing(self.work / RECIPE_FILE) as file:
            file.write(yaml.safe_dump({**values, "data_folder": "."}, sort_keys=False).encode())

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """The recipe of the training, as saved with the model."""
        values: dict[str, Any] = load_yaml((self.work / RECIPE_FILE).read_text(encoding="utf-8"), RECIPE_FILE)
        return values

    def _examples(self, generator: str | None) -> list[Example]:
        """Return the examples to learn from: queries of people first, then written questions, then made questions."""
        learned, count = self.exam.training, ceil(self.plan.steps * QUESTIONS_PER_STEP / FULL_BATCHES)
        examples = asked_examples(self.log, self.collection, learned) if self.log else []
        if generator is not None:
            examples += written_examples(generator, learned, self.collection, count // 2, self.seed, self.device)
        examples += made_examples(learned, self.rarity, self.seed, count)
        return [*{example.query: example for example in reversed(examples)}.values()][::-1][:count]

    def _scale(self, examples: Sequence[Example]) -> Scale:
        """Measure the scores of the initial model on a sample of the examples."""
        sample = [examples[row] for row in spread(len(examples), SCALE_TEXTS)]
        queries = TextEncoder(self.start, "query", max_length=QUERY_LENGTH)
        documents = TextEncoder(self.start, "document", max_length=DOCUMENT_LENGTH)
        return measure_scale(
            queries.encode([example.query for example in sample]),
            documents.encode([example.positive for example in sample]),
        )

    def compare(self, trained: SparseEncoder | None) -> TuningReport:
        """Ask both models the questions of the exam and of the control."""
        collections = [self.collection] + ([] if trained is None else [self._encoded(trained, AFTER)])
        start, end = (answer(encoded, self.lexical, self.exam) for encoded in (collections[0], collections[-1]))
        results = changes(start, end, self.exam)
        verdict, reason = judge(results)
        if trained is None:
            verdict, reason = "no difference", "the training collapsed; the model stays as it was"
        models = {BEFORE: self.start, AFTER: trained or self.start}
        first, second = (self._control(model, folder) for folder, model in models.items())
        return TuningReport(
            model=self.name,
            corpus="",
            verdict=verdict,
            reason=reason,
            alone=results["alone"],
            hybrid=results["hybrid"],
            recall=results["recall"],
            dense=results.get("dense"),
            together=results.get("together"),
            control=change(first, second, list(first.per_query[EXAM_MEASURE])),
            costs=[side.cost for side in (start.alone, end.alone) if side.cost is not None],
            plan=self.plan,
            examples=(self.work / EXAMPLES_FILE).read_bytes().count(b"\n"),
            steps=self.recipe["training"]["steps"],
            minutes=0.0,
        )

    def _control(self, model: SparseEncoder, folder: str) -> Evaluation:
        dataset = control()
        encoded = encode_dataset(model, dataset, keep=self.work / f"control-{folder}", name=folder, title="control")
        return evaluate_run(folder, retrieve(encoded, k=EXAM_DEPTH), dataset, [EXAM_MEASURE])

    def assemble(self, report: TuningReport, trained: SparseEncoder | None) -> None:
        """Write the result of the work: the better model, the report, the recipe, and the examples."""
        result = self.work / TUNED
        if result.exists():
            shutil.rmtree(result)
        if report.verdict == "better" and trained is not None:
            shutil.copytree(self.work / TRAINED, result)
            (result / TRAINING_SETTINGS).unlink()
        else:
            self.start.to(getattr(torch, _stored_type(self.start)))
            save_model(self.start, result)
        for file in (RECIPE_FILE, EXAMPLES_FILE):
            shutil.copy(self.work / file, result / file)
        write_report(result, report, self.recipe)


def _from_anywhere(name: str) -> str:
    """Return the name of a model, or its absolute path if it is a folder, for a recipe that may be moved."""
    return os.path.abspath(name) if Path(name).is_dir() else name


def _stored_type(model: SparseEncoder) -> Literal["float32", "bfloat16"]:
    """Return the smaller number type that holds the weights of a model exactly."""
    exact = all(torch.equal(weight.bfloat16().to(weight.dtype), weight) for weight in model.parameters())
    return "bfloat16" if exact else "float32"


def control() -> Dataset:
    """Return the built-in collection: half of the docstrings of the known-item test, without their first sentences."""
    items = [item for item in pydocs.known_items() if item.split == "test"][::2]
    documents = [Document(item.id, item.rest) for item in items]
    queries = [Query(item.id, item.sentence) for item in items]
    return Dataset("control", documents, queries, [Qrel(item.id, item.id, 1) for item in items])
