"""The verb `tune`: a model for the user's documents, trained on questions that they answer.

The work folder OUTPUT.partial has the plan, the examples, the recipe and the trained model. Each is made once; an
interrupted command uses it again when repeated.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from functools import cached_property, partial
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Literal

import torch
import yaml
from annotated_types import Gt
from sentence_transformers import SparseEncoder

from vocable.collection.index import index
from vocable.core.fingerprint import settings_of
from vocable.core.progress import StagedProgress, track
from vocable.core.steps import made_once, record_once
from vocable.core.storage import RECIPE as TRAINING_SETTINGS
from vocable.core.storage import (
    SETTINGS,
    finish,
    finished,
    read_record,
    replacing,
    replacing_folder,
    resumable,
    write_record,
)
from vocable.core.threads import release_memory, share_arenas
from vocable.data import Document, Example, Query, read_corpus, read_queries
from vocable.data.bad_lines import tolerant
from vocable.encoding.graph import refuse_exported
from vocable.encoding.graph_settings import GraphSettings, read_graph_settings
from vocable.encoding.hub import locate
from vocable.encoding.load import graph_folder
from vocable.encoding.text_encoder import TextEncoder
from vocable.errors import ArgumentError, DataError, ModelError
from vocable.evaluation.cost import spread
from vocable.options import CountOrZero, checked
from vocable.torch_models.asymmetric import positions
from vocable.torch_models.export import export_model
from vocable.torch_models.fuse import splade_modules
from vocable.torch_models.graph_files import COMPARISON
from vocable.torch_models.sparse_encoder import load_sparse_encoder
from vocable.training.recipe_files import load_yaml, make_recipe
from vocable.training.run import carry_out
from vocable.tuning.plan import (
    FULL_BATCHES,
    TUNING_FILE,
    Plan,
    Tuned,
    check_questions,
    check_vocabulary,
    make_plan,
    warn_of_few_steps,
)
from vocable.tuning.probes import measure_speed, read_words
from vocable.tuning.questions import distinct
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
from vocable.tuning.time_limit import STEPS_FILE, TimeLimit

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)

PLAN_FILE, RECIPE_FILE = "plan.json", "recipe.yaml"
SEARCHED, TRAINED, GRAPH, WITH_GRAPH, TUNED = "index", "trained", "graph", "trained-with-graph", "model"  # of the work
SCALE_TEXTS = 256  # examples whose scores are measured
GRAPH_TEXTS = 192  # documents that give the ranges of an 8-bit graph


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
    queries: str | None = None,
    generator: str | None = None,
    skip_bad: CountOrZero = 0,
) -> Tuned | Plan:
    """Tune a model on your own documents.

    It learns from questions that are taken from the documents: titles and sentences. The output is the tuned model,
    with a graph if the initial model has one. An interrupted run resumes when repeated.

    Args:
        model: the name of a model with weights: vocable-mini, a folder, or a Hub id.
        corpus: source of the documents, such as a folder of Markdown files.
        output: output folder (written atomically): the model, tuning.json, recipe.yaml, examples.jsonl.
        minutes: most minutes of a run; a machine that is slower than planned trains fewer steps.
        seed: seed of questions and training.
        device: device of the models, such as cpu, cuda or cuda:1; by default the best available.
        dry_run: look at model, documents and machine, and end with the plan.
        queries: source of queries of people to learn from, too.
        generator: causal or sequence-to-sequence model that writes more questions.
        skip_bad: number of malformed lines to skip; one more is an error.

    Returns:
        what was trained; with `dry_run` the plan.

    Raises:
        ArgumentError: too few minutes, too little free memory, several processes, or the output is something else.
        CollapseError: the training collapsed, and nothing is written.
        DataError: a source cannot be read, or its documents give too few questions.
        ModelError: no such model, or its vocabulary does not fit the documents' language.
    """
    settings = settings_of(tune, locals())
    # Refuse what would fail after the work, and read what a finished call made.
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ArgumentError("tune runs in one process: start it without torchrun, and train its recipe.yaml with it")
    if not dry_run and finished(output, settings):
        return Tuned.read(output)
    share_arenas()
    name = str(model)
    for other in filter(None, (name, generator)):
        locate(other)  # a wrong name is an error before the work
    documents, repeated = distinct(track(read_corpus(corpus), "documents"))
    asked = [] if queries is None else list(read_queries(queries))
    make = partial(_plan, name, documents, repeated, minutes, device, indexed=bool(asked or generator))
    if dry_run:
        return make()
    # Each step writes its result into the work folder, and a repeated call reads it.
    with resumable(output, settings) as work:
        began = perf_counter()
        plan = record_once(work / PLAN_FILE, Plan, make)
        for label, figure in plan.lines():
            logger.info("plan: %s: %s", label, figure)
        plan.check_memory()
        documents = [documents[row] for row in spread(len(documents), plan.documents)]
        planned = plan.stages(graph=graph_folder(name) is not None)
        with StagedProgress(planned, minutes * 60) as progress:
            tuning = Tuning(name, device, documents, work, plan, seed, progress)
            made_once(work / RECIPE_FILE, partial(tuning.write_recipe, asked, generator))
            trained = tuning.train(TimeLimit(plan, planned, began, work))
        tuning.assemble(
            trained,
            Tuned(
                model=name,
                corpus=str(corpus),
                examples=(work / EXAMPLES_FILE).read_bytes().count(b"\n"),
                steps=tuning.carried_out["training"]["steps"],
                minutes=(perf_counter() - began) / 60,
            ),
        )
        finish(work, output, work / TUNED)
    return Tuned.read(output)


def _plan(
    name: str, documents: Sequence[Document], repeated: int, minutes: float, device: str | None, *, indexed: bool
) -> Plan:
    if not documents:
        raise DataError("there are no documents to learn from")
    model = load_sparse_encoder(name, device=device)
    refuse_exported(model)
    if (read := min(positions(transformer) for transformer, _ in splade_modules(model))) < DOCUMENT_LENGTH:
        raise ModelError(f"{name} reads at most {read} tokens of a text, and a tuning needs {DOCUMENT_LENGTH}")
    reading = read_words(documents, repeated, splade_modules(model)[-1][0].tokenizer)
    check_vocabulary(name, reading)
    if not indexed:
        check_questions(reading)
    plan = make_plan(reading, measure_speed(name, model, documents, device), minutes, indexed=indexed)
    warn_of_few_steps(plan)
    return plan


class Tuning:
    """The stages of a tuning in a work folder; a stage is carried out once, and not repeated after an interruption."""

    def __init__(
        self,
        name: str,
        device: str | None,
        documents: Sequence[Document],
        work: Path,
        plan: Plan,
        seed: int,
        progress: StagedProgress,
    ) -> None:
        self.name, self.device, self.work, self.plan, self.seed = name, device, work, plan, seed
        self.documents, self.progress = documents, progress

    def train(self, limit: TimeLimit) -> Path:
        """Train the model within the time, with a graph if the initial model has one; return its folder."""
        trained = self.work / TRAINED
        release_memory(collect=True)  # of the plan's and the recipe's models
        self.progress.begin("train")
        values = self.recipe | {"data_folder": str(self.work)}
        carry_out(make_recipe(values), trained, resume=True, further=[limit])
        release_memory(collect=True)
        if (graph := graph_folder(self.name)) is None:
            return trained
        self.progress.begin("export-model")
        try:
            return made_once(self.work / WITH_GRAPH, partial(self._add_graph, read_graph_settings(graph)))
        except ModelError as error:  # a training of an hour is not lost for its graph
            logger.warning("the tuned model has no graph: %s", error)
            return trained

    def _add_graph(self, like: GraphSettings) -> None:
        """Write the trained model with a graph in the format of the initial model's."""
        trained, graph = self.work / TRAINED, self.work / GRAPH
        texts = [document.full for document in self.documents]
        texts = [texts[row] for row in spread(len(texts), GRAPH_TEXTS)]
        model = load_sparse_encoder(trained, device="cpu")
        export_model(model, graph, format=like.format, int8=like.int8, texts=texts)
        with replacing_folder(self.work / WITH_GRAPH) as folder:
            shutil.copytree(graph, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(COMPARISON, SETTINGS))
            shutil.copytree(trained, folder, dirs_exist_ok=True)

    def write_recipe(self, asked: Sequence[Query], generator: str | None) -> None:
        """Write the examples and the recipe of the training."""
        examples = self._examples(asked, generator)
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

    def _examples(self, asked: Sequence[Query], generator: str | None) -> list[Example]:
        """Return the examples to learn from: queries of people first, then written questions, then made questions."""
        count = ceil(self.plan.steps * QUESTIONS_PER_STEP / FULL_BATCHES)
        examples = list[Example]()
        if self.plan.indexed:
            self.progress.begin("index")
            searched = self.work / SEARCHED
            with index(self.name, self.documents, searched, no_dense=True, bm25=True, device=self.device) as opened:
                examples = asked_examples(asked, self.documents, opened)
                if generator is not None:
                    examples += written_examples(generator, self.documents, opened, count // 2, self.seed, self.device)
        examples += made_examples(self.documents, self.seed, count)
        return [*{example.query: example for example in reversed(examples)}.values()][::-1][:count]

    def assemble(self, trained: Path, result: Tuned) -> None:
        """Write the result of the work: the tuned model, its record, the recipe, and the examples."""
        folder = self.work / TUNED
        if folder.exists():
            shutil.rmtree(folder)
        shutil.copytree(trained, folder, ignore=shutil.ignore_patterns(TRAINING_SETTINGS))
        shutil.copy(self.work / EXAMPLES_FILE, folder / EXAMPLES_FILE)
        _write_yaml(self.carried_out, folder / RECIPE_FILE)
        write_record(folder / TUNING_FILE, result)


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
