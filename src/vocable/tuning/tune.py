"""The verb `tune`: a model for the user's documents, handed out unless an exam shows harm.

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
from vocable.core.progress import Stages, track
from vocable.core.steps import made_once, record_once
from vocable.core.storage import RECIPE as TRAINING_SETTINGS
from vocable.core.storage import SETTINGS, finish, finished, read_record, replacing, replacing_folder, resumable
from vocable.core.threads import release_memory, share_arenas
from vocable.data import Document, Example, read_corpus
from vocable.data.bad_lines import tolerant
from vocable.encoding.graph import is_exported, refuse_exported
from vocable.encoding.graph_settings import GraphSettings, has_weights, read_graph_settings
from vocable.encoding.hub import CARD, locate
from vocable.encoding.load import graph_folder, load_encoder
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError, CollapseError, DataError, ModelError
from vocable.evaluation.cost import spread
from vocable.evaluation.encoded import Encoded, encode_dataset
from vocable.evaluation.retrievers import lexical_index
from vocable.options import CountOrZero, checked
from vocable.torch_models.asymmetric import positions
from vocable.torch_models.export import export_model
from vocable.torch_models.fuse import splade_modules
from vocable.torch_models.graph_files import COMPARISON
from vocable.torch_models.sparse_encoder import load_sparse_encoder, save_model
from vocable.training.recipe_files import load_yaml, make_recipe
from vocable.training.run import carry_out
from vocable.training_options import TuningSources
from vocable.tuning.exam import (
    AskedQueries,
    answers,
    check_count,
    distinct,
    make_exam,
    read_asked,
)
from vocable.tuning.plan import (
    FULL_BATCHES,
    Plan,
    check_questions,
    check_vocabulary,
    make_plan,
    warn_of_few_steps,
)
from vocable.tuning.probes import measure_speed, read_words
from vocable.tuning.questions import Rarity
from vocable.tuning.recipe import (
    DOCUMENT_LENGTH,
    EXAMPLES_FILE,
    QUERY_LENGTH,
    QUESTIONS_PER_STEP,
    Scale,
    asked_examples,
    made_examples,
    measure_scale,
    recipe,
    written_examples,
)
from vocable.tuning.report import TRAINED, TuningReport, changes, judge, write_report
from vocable.tuning.time_limit import STEPS_FILE, TimeLimit

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)

PLAN_FILE, RECIPE_FILE = "plan.json", "recipe.yaml"
BEFORE, AFTER, GRAPH, WITH_GRAPH, TUNED = "before", "after", "graph", "trained-with-graph", "model"  # of the work
SCALE_TEXTS = 256  # examples whose scores are measured
GRAPH_TEXTS = 192  # documents that give the ranges of an 8-bit graph
LEAST_OVERLAP = 0.1  # of the largest terms: a graph below is broken, and the exam measures the others


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
    """Tune a model on your own documents, with an exam.

    The models before and after answer questions about documents that the training does not use. The output is the tuned
    model, with a graph if the initial model has one. If the exam shows harm, it is the initial model, and the tuned
    model lies in its folder `trained`. An interrupted run resumes when repeated.

    Args:
        model: the name of a model with weights: vocable-mini, a folder, or a Hub id.
        corpus: source of the documents, such as a folder of Markdown files.
        output: output folder (written atomically): the model, index.html, report.json, recipe.yaml, examples.jsonl.
        minutes: most minutes of a run; a machine that is slower than planned trains fewer steps.
        seed: seed of questions and training.
        device: device of the models, such as cpu, cuda or cuda:1; by default the best available.
        dry_run: look at model, documents and machine, and end with the plan.
        skip_bad: number of malformed lines to skip; one more is an error.
        sources: the fields of `vocable.training_options.TuningSources`.

    Returns:
        the report; with `dry_run` the plan.

    Raises:
        ArgumentError: too few minutes, too little free memory, several processes, or the output is something else.
        DataError: a source cannot be read, or has fewer than 300 distinct documents and no judged queries.
        ModelError: no such model, or its vocabulary does not fit the documents' language.
    """
    settings = settings_of(tune, locals())
    # Refuse what would fail after the work, and read a finished report.
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ArgumentError("tune runs in one process: start it without torchrun, and train its recipe.yaml with it")
    if not dry_run and finished(output, settings):
        return TuningReport.read(output)
    share_arenas()
    name = str(model)
    for other in filter(None, (name, sources.get("generator"))):
        locate(other)  # a wrong name is an error before the work
    documents, repeated = distinct(track(read_corpus(corpus), "documents"))
    make = partial(_plan, name, documents, repeated, minutes, device, sources)
    if dry_run:
        return make()
    # Each step writes its result into the work folder, and a repeated call reads it.
    with resumable(output, settings) as work:
        began = perf_counter()
        plan = record_once(work / PLAN_FILE, Plan, make)
        for label, figure in plan.lines():
            logger.info("plan: %s: %s", label, figure)
        plan.check_memory()
        documents = [documents[row] for row in spread(len(documents), plan.collection)]
        asked = read_asked(sources, {document.id for document in documents})
        generator = sources.get("generator")
        planned = plan.stages(asked=bool(asked.unjudged or generator), graph=graph_folder(name) is not None)
        with Stages(planned, minutes * 60) as stages:
            limit = TimeLimit(plan, planned, began, work)
            tuning = Tuning(name, device, documents, asked, work, plan, seed, stages)
            trained = tuning.train(generator, limit)
            report = tuning.compare(trained)
        origin = f"Made on {date.today():%Y-%m-%d} with vocable {__version__}."
        spent = (perf_counter() - began) / 60
        report = replace(report, corpus=str(corpus), minutes=spent, output=Path(output), made=origin)
        tuning.assemble(report, trained)
        finish(work, output, work / TUNED)
    return report


def _plan(
    name: str,
    documents: Sequence[Document],
    repeated: int,
    minutes: float,
    device: str | None,
    sources: TuningSources,
) -> Plan:
    check_count(documents, sources)
    model = load_sparse_encoder(name, device=device)
    refuse_exported(model)
    if (read := min(positions(transformer) for transformer, _ in splade_modules(model))) < DOCUMENT_LENGTH:
        raise ModelError(f"{name} reads at most {read} tokens of a text, and a tuning needs {DOCUMENT_LENGTH}")
    reading = read_words(documents, repeated, splade_modules(model)[-1][0].tokenizer)
    check_vocabulary(name, reading)
    if not (sources.get("queries") or sources.get("generator")):
        check_questions(reading)
    plan = make_plan(reading, measure_speed(name, model, documents, device), minutes)
    warn_of_few_steps(plan)
    return plan


class Tuning:
    """The stages of a tuning in a work folder; a stage is carried out once, and not repeated after an interruption."""

    def __init__(
        self,
        name: str,
        device: str | None,
        documents: Sequence[Document],
        asked: AskedQueries,
        work: Path,
        plan: Plan,
        seed: int,
        stages: Stages,
    ) -> None:
        self.name, self.device, self.work, self.plan, self.seed = name, device, work, plan, seed
        self.stages = stages
        self.log = asked.unjudged
        self.rarity = Rarity(document.full for document in documents)
        self.exam = make_exam(documents, self.rarity, seed, asked.judged, asked.judgments)
        self.words = lexical_index(self.exam.dataset)

    @cached_property
    def collection(self) -> Encoded:
        """The collection of the exam, encoded by the initial model."""
        return self._encoded(self.name, BEFORE)

    def _encoded(self, model: str | Path, folder: str) -> Encoded:
        """Encode the collection of the exam, as a search does; a folder of the work keeps the vectors."""
        self.stages.begin(folder)
        encoder = load_encoder(model, self.device)
        return encode_dataset(encoder, self.exam.dataset, keep=self.work / folder, name=folder, title=f"model {folder}")

    def train(self, generator: str | None, limit: TimeLimit) -> Path | None:
        """Train the model within the time; return its folder, or None if the training collapsed."""
        made_once(self.work / RECIPE_FILE, partial(self._write_recipe, generator))
        trained = self.work / TRAINED
        release_memory(collect=True)  # of the plan's and the recipe's models
        self.stages.begin("train")
        try:
            carry_out(make_recipe(self.recipe | {"data_folder": str(self.work)}), trained, True, [limit])
        except CollapseError as error:
            logger.warning("%s", error)
            return None
        release_memory(collect=True)
        if (graph := graph_folder(self.name)) is None:
            return trained
        self.stages.begin("export-model")
        return made_once(self.work / WITH_GRAPH, partial(self._add_graph, read_graph_settings(graph)))

    def _add_graph(self, like: GraphSettings) -> None:
        """Write the trained model with a graph in the format of the initial model's; the exam measures its answers."""
        trained, graph = self.work / TRAINED, self.work / GRAPH
        texts = [document.full for document in self.exam.training]
        texts = [texts[row] for row in spread(len(texts), GRAPH_TEXTS)]
        model = load_sparse_encoder(trained, device="cpu")
        export_model(model, graph, format=like.format, int8=like.int8, texts=texts, min_overlap=LEAST_OVERLAP)
        with replacing_folder(self.work / WITH_GRAPH) as folder:
            shutil.copytree(graph, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(COMPARISON, SETTINGS))
            shutil.copytree(trained, folder, dirs_exist_ok=True)

    def _write_recipe(self, generator: str | None) -> None:
        """Write the examples and the recipe of the training."""
        examples = self._examples(generator)
        with replacing(self.work / EXAMPLES_FILE) as file:
            file.writelines(example.line for example in examples)
        steps = min(self.plan.steps, int(FULL_BATCHES * len(examples)) // QUESTIONS_PER_STEP)
        if steps < 1:
            raise DataError(f"the documents give {len(examples):,} questions, and a step needs {QUESTIONS_PER_STEP}")
        model = load_sparse_encoder(self.name, device=self.device)
        name = _from_anywhere(self.name)
        values = recipe(name, _scale(model, examples), steps, self.seed, _stored_type(model))
        _write_yaml({**values, "data_folder": "."}, self.work / RECIPE_FILE)

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """The recipe of the training, as saved with the model."""
        return load_yaml((self.work / RECIPE_FILE).read_text(encoding="utf-8"), RECIPE_FILE)

    @property
    def carried_out(self) -> dict[str, Any]:
        """The recipe with the steps that were trained, which are fewer than planned on a slow machine."""
        steps = self.recipe["training"]["steps"]
        if (trained := self.work / STEPS_FILE).exists():
            steps = read_record(trained, dict[str, int])["steps"]
        return self.recipe | {"training": self.recipe["training"] | {"steps": steps}}

    def _examples(self, generator: str | None) -> list[Example]:
        """Return the examples to learn from: queries of people first, then written questions, then made questions."""
        learned, count = self.exam.training, ceil(self.plan.steps * QUESTIONS_PER_STEP / FULL_BATCHES)
        examples = asked_examples(self.log, self.collection, learned) if self.log else []
        if generator is not None:
            examples += written_examples(generator, learned, self.collection, count // 2, self.seed, self.device)
        examples += made_examples(learned, self.rarity, self.seed, count)
        return [*{example.query: example for example in reversed(examples)}.values()][::-1][:count]

    def compare(self, trained: Path | None) -> TuningReport:
        """Ask both models the questions of the exam."""
        initial = self.collection
        tuned = initial if trained is None else self._encoded(trained, AFTER)
        if self.plan.speed.models > 2:
            self.stages.begin("dense")
        start, end = answers([initial, tuned], self.words, self.exam.dataset)
        results = changes(start, end, self.exam)
        judgment = judge(results)
        if trained is None:
            judgment = judgment._replace(verdict="worse", reason="the training collapsed; the model stays as it was")
        return TuningReport(
            model=self.name,
            corpus="",
            **judgment._asdict(),
            alone=results["alone"],
            hybrid=results["hybrid"],
            recall=results["recall"],
            costs=[side.cost for side in (start.alone, end.alone) if side.cost is not None],
            plan=self.plan,
            examples=(self.work / EXAMPLES_FILE).read_bytes().count(b"\n"),
            steps=self.carried_out["training"]["steps"],
            minutes=0.0,
        )

    def assemble(self, report: TuningReport, trained: Path | None) -> None:
        """Write the result of the work: the tuned or the initial model, the report, the recipe, and the examples."""
        result = self.work / TUNED
        without_settings = shutil.ignore_patterns(TRAINING_SETTINGS)
        if result.exists():
            shutil.rmtree(result)
        if report.verdict != "worse" and trained is not None:
            shutil.copytree(trained, result, ignore=without_settings)
            with (result / CARD).open("a", encoding="utf-8") as card:
                card.write(report.section())
        else:
            self._copy_initial(result)
            if trained is not None:
                shutil.copytree(trained, result / TRAINED, ignore=without_settings)
        shutil.copy(self.work / EXAMPLES_FILE, result / EXAMPLES_FILE)
        _write_yaml(self.carried_out, result / RECIPE_FILE)
        write_report(result, report, self.carried_out)

    def _copy_initial(self, result: Path) -> None:
        """Write the initial model, with its graph if its folder has both."""
        place = locate(self.name)
        if is_exported(place) and has_weights(place):
            shutil.copytree(place, result, copy_function=shutil.copyfile)  # installed files may be read-only
            return
        model = load_sparse_encoder(self.name, device="cpu")
        save_model(model.to(getattr(torch, _stored_type(model))), result)


def _scale(model: SparseEncoder, examples: Sequence[Example]) -> Scale:
    """Measure the scores of the initial model on a sample of the examples."""
    sample = [examples[row] for row in spread(len(examples), SCALE_TEXTS)]
    queries = TextEncoder(model, "query", max_length=QUERY_LENGTH)
    documents = TextEncoder(model, "document", max_length=DOCUMENT_LENGTH)
    return measure_scale(
        queries.encode([example.query for example in sample]),
        documents.encode([example.positive for example in sample]),
    )


def _write_yaml(values: dict[str, Any], path: Path) -> None:
    with replacing(path) as file:
        file.write(yaml.safe_dump(values, sort_keys=False).encode())


def _from_anywhere(name: str) -> str:
    """Return the name of a model, or its absolute path if it is a folder, for a recipe that may be moved."""
    return os.path.abspath(name) if Path(name).is_dir() else name


def _stored_type(model: SparseEncoder) -> Literal["float32", "bfloat16"]:
    """Return the smaller number type that holds the weights of a model exactly."""
    exact = all(torch.equal(weight.bfloat16().to(weight.dtype), weight) for weight in model.parameters())
    return "bfloat16" if exact else "float32"
