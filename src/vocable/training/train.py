"""Train retrievers as recipes say, on the host library's trainer.

Everything is made in `OUTPUT.partial`: tokens, examples and checkpoints, so that the same command goes on after a kill.
The finished model is renamed into place.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from sentence_transformers import SparseEncoder
from sentence_transformers.base.sampler import BatchSamplers
from sentence_transformers.sparse_encoder import SparseEncoderTrainer, SparseEncoderTrainingArguments
from sentence_transformers.sparse_encoder.model_card import SparseEncoderModelCardCallback
from transformers.trainer_callback import PrinterCallback, TrainerState

from vocable.adapt.rescale import PROBE_TEXTS
from vocable.adapt.statistics import RULES
from vocable.data import tolerating
from vocable.encoder.asymmetric import Role, positions, static_embedding
from vocable.encoder.cpu import float32_attention, use_few_shapes
from vocable.encoder.fuse import every_pooling_allowed, splade_modules
from vocable.encoder.graph import refuse_exported
from vocable.encoder.hub import trusting, without_bars
from vocable.encoder.load import load
from vocable.encoder.text_encoder import TextEncoder
from vocable.errors import ArgumentError, DataError, RecipeError
from vocable.figures import check_figure, save_figure
from vocable.storage import finish, finished, resumable
from vocable.training import distributed
from vocable.training.batch_statistics import Monitor
from vocable.training.callbacks import (
    EvaluateDuringTraining,
    MarkComplete,
    MeasureWackiness,
    ObjectiveState,
    ProgressLog,
    ValidWeights,
    last_checkpoint,
    lower_rate,
    refuse_wrecked,
    set_dropout,
)
from vocable.training.data import InOrder, load_training_data
from vocable.training.guard import Guard, refuse_stopped
from vocable.training.objective import make_objective
from vocable.training.pretraining import pretrain
from vocable.training.recipe import Recipe, read_recipe, work_settings
from vocable.training.settings import SavedSettings
from vocable.training.stages import (
    EXAMPLES,
    PARAMETERS,
    PRETRAIN,
    carry_out_stages,
    check_sources,
    freeze_documents,
    queries_learn_apart,
)
from vocable.training.variants import TrainingResults, effectiveness_against_flops, plan_runs, train_planned

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)  # how it ended is for everybody

PROBE = 8  # held-out pairs that say something of a model
LOG = "log.jsonl"  # beside the model, as is the recipe


def train(
    recipe: Recipe | str | Path,
    output: str | Path,
    *,
    variant: str | None = None,
    variants: Sequence[str] | str | None = None,
    overrides: Sequence[str] = (),
    sweep: str | None = None,
    figure: str | Path | None = None,
    resume: bool = True,
) -> SparseEncoder | TrainingResults:
    """Carry out a recipe and leave the model in `output`, or several runs in OUTPUT/NAME and measure them.

    Work in progress is kept beside each folder, in NAME.partial: the same call goes on from its last checkpoint. A
    folder that this very recipe made is used as it is.

    Args:
        recipe: what `vocable.read_recipe` gives, a YAML file, or the name of a built-in recipe.
        output: a folder that is not there yet; of several runs the folder of theirs.
        variant: which of the recipe's variants to train.
        variants: several of them, each a run; "all" for all.
        overrides: `KEY=VALUE` texts that change keys of the recipe, after those of the variant.
        sweep: train once with each of these values of a key, and measure. As `KEY=VALUE,VALUE,...`; each variant is.
        figure: with `sweep`, a file for quality against FLOPS, .png or .svg.
        resume: go on with unfinished work; otherwise it is thrown away. What is done stays.

    Returns:
        the model, or of several runs their results, which the first process also writes to OUTPUT/results.json.

    Raises:
        ArgumentError: the output is something else, or the work of another recipe; or arguments exclude each other.
        RecipeError: the recipe is not as it should be, or needs what is not shipped.
        DataError, ModelError: what the recipe names cannot be read.
        CollapseError: the guard has stopped the run, now or in an earlier call.
    """
    if variant is not None and variants is not None:
        raise ArgumentError("give variant for one, or variants for several, not both")
    if figure is not None and sweep is None:
        raise ArgumentError("figure draws a sweep: give sweep, as KEY=VALUE,VALUE,...")
    several = variants is not None or sweep is not None
    if isinstance(recipe, Recipe):
        if several or variant is not None or overrides:
            needed = "a recipe's file or name: this one is read already"
            raise ArgumentError(f"variants, overrides and a sweep need {needed}")
        return _carry_out(recipe, Path(output), resume)
    if not several:
        return _carry_out(read_recipe(recipe, overrides, variant), Path(output), resume)
    some = [variants] if isinstance(variants, str) else variants or []
    listed = [name.strip() for one in some for name in one.split(",")]
    names = [variant] if variant is not None else None if listed == ["all"] else listed
    if figure is not None:
        check_figure(figure)
    results = train_planned(
        plan_runs(recipe, names, overrides, sweep), Path(output), partial(_carry_out, resume=resume)
    )
    if figure is not None and distributed.is_first():
        save_figure(effectiveness_against_flops(results), figure)
    return results


def _carry_out(recipe: Recipe, output: Path, resume: bool) -> SparseEncoder:
    """Train one model, or load what this recipe made in `output`."""
    recipe.check_needs()
    kept, trust = work_settings(recipe), recipe.trust_remote_code
    if finished(output, **kept):
        return load(output, trust_remote_code=trust)
    distributed.join()
    settings, shares = recipe.training, distributed.count()
    for part, size in (("training", settings.batch_size), ("pretrain", recipe.pretrain and recipe.pretrain.batch_size)):
        if size and size % shares:
            raise RecipeError(f"{part}.batch_size: {size} examples cannot be shared equally by {shares} processes")
    own_encoder = recipe.queries is not None and (recipe.queries.model is not None or recipe.queries.trainable)
    if shares > 1 and settings.micro_batch is not None and own_encoder:
        # The last micro batch, one of documents, has the gradients exchanged, and those of queries would be left out.
        raise RecipeError("training.micro_batch and queries that learn apart from documents need a single process")
    with ExitStack() as stack:
        stack.enter_context(trusting(trust))
        stack.enter_context(tolerating(recipe.data.skip_bad))
        with distributed.first_alone():
            work = stack.enter_context(resumable(output, **kept, anew=not resume))
            refuse_stopped(work)
        check_sources(recipe, work)
        start = carry_out_stages(recipe, work)
        _fine_tune(start, recipe, work)
        if distributed.is_first():
            shutil.copy(work / LOG, work / "model" / LOG)
            if (adapting := work / PRETRAIN / pretrain.LOG).exists():
                shutil.copy(adapting, work / "model" / pretrain.KEPT_LOG)
            finish(work, output, work / "model", name=kept["name"])
        distributed.wait()
    return load(output, trust_remote_code=trust)


def _fine_tune(start: str, recipe: Recipe, work: Path) -> None:
    """Train the model `start`, from the last checkpoint in `work` on; the first process leaves it in work/model."""
    settings = recipe.training
    model = load(start, pooling=recipe.pooling, activation=recipe.activation)
    refuse_exported(model)
    if recipe.queries is not None and recipe.queries.freeze_documents:
        freeze_documents(model)
    with distributed.first_alone():
        data = load_training_data(recipe, model, work / EXAMPLES)
    set_dropout(model, settings.dropout)
    for transformer, _ in splade_modules(model):
        use_few_shapes(transformer.auto_model)
    own = _lengths(model)
    _set_lengths(model, settings.query_length, settings.document_length)
    most = min(positions(transformer) for transformer, _ in splade_modules(model))
    for key in {"query_length", "document_length"} & settings.model_fields_set if distributed.is_first() else ():
        if (asked := getattr(settings, key)) > most:
            logger.warning("training.%s: the model has %d positions, where texts are cut, not %d", key, most, asked)
    card = model.model_card_data  # nothing is looked up, nor encoded anew at every checkpoint
    card.local_files_only, card.generate_widget_examples = True, False
    monitor = Monitor(settings.yardstick)
    objective = make_objective(model, settings, data, monitor)
    columns = [column for column in next(iter(data.examples.values())).column_names if column != "label"]
    texts = next(iter(data.examples.values()))[:PROBE_TEXTS]["positive"]
    before = _found(model, data.held_out) if distributed.is_first() else 0.0
    trainer = _Trainer(
        model,
        _arguments(model, recipe, columns, work / "train"),
        train_dataset=data.examples,
        loss=objective,
        callbacks=[ValidWeights(), ObjectiveState(objective)],
    )
    trainer.remove_callback(PrinterCallback)
    if measured := settings.regularizers.needing("wackiness"):
        trainer.add_callback(MeasureWackiness(objective.penalties, measured, data.examples, recipe.seed))
    trainer.add_callback(guard := Guard(recipe, model, texts, monitor, work))
    measuring = None
    if recipe.evaluation is not None and recipe.evaluation.every is not None:
        measuring = EvaluateDuringTraining(recipe, recipe.evaluation, trainer, work)
        trainer.add_callback(measuring)
    if distributed.is_first():
        trainer.add_callback(ProgressLog("train", work / LOG, monitor.figures))
    trainer.add_callback(MarkComplete())
    with ExitStack() as stack:
        stack.enter_context(every_pooling_allowed())  # the trainer opens its checkpoints with stock classes
        stack.enter_context(distributed.together())
        for transformer, _ in splade_modules(model):
            stack.enter_context(float32_attention(transformer.auto_model))
        trainer.train(resume_from_checkpoint=last_checkpoint(work / "train"))
    guard.check()
    if trainer.state.global_step < settings.steps:
        batch = f"a batch of {settings.batch_size} examples"
        raise DataError(f"{batch} in which no text is there twice cannot be made of data.examples: lower batch_size")
    if distributed.is_first():
        if measuring is not None and (which := measuring.take_best(model)):
            logger.info(which)
        if recipe.saved.start_share:
            _average_with(load(start, device=str(model.device)), model, recipe.saved.start_share)
        refuse_wrecked("training", model, settings.learning_rate)
        _report(before, _found(model.eval(), data.held_out), len(data.held_out), settings.learning_rate)
        _save(model, recipe.saved, own, work / "model")


class _Card(SparseEncoderModelCardCallback):
    """The host's, which says what trained a model, without its quotations of training texts and names of folders."""

    def on_init_end(self, args: Any, state: Any, control: Any, model: Any, trainer: Any, **kwargs: Any) -> None:
        model.model_card_data.add_tags("generated_from_trainer")
        model.model_card_data.set_losses([trainer.loss])

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any, **kwargs: Any) -> None:
        """Take up the losses that were logged before a kill, from the checkpoint's state."""
        super().on_train_begin(args, state, control, model, **kwargs)
        for logs in state.log_history:
            at = TrainerState(epoch=logs.get("epoch"), global_step=logs["step"])
            self.on_log(args, at, control, model, logs)


class _Trainer(SparseEncoderTrainer):
    model_card_callback_class = _Card

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        with without_bars():
            super()._load_from_checkpoint(checkpoint_path)


def _found(model: SparseEncoder, pairs: Dataset) -> float:
    """The share of queries that score highest with their own positive among those of all pairs."""
    if len(pairs) < PROBE:
        return 0.0
    sides: tuple[tuple[Role, str], ...] = ("query", "query"), ("document", "positive")
    queries, documents = (TextEncoder(model, role).encode(list(pairs[column])) for role, column in sides)
    scores = (queries @ documents.T).toarray()
    return float((scores.argmax(axis=1) == range(len(scores))).mean())


def _report(before: float, after: float, pairs: int, rate: float) -> None:
    """Say how many of the held-out `pairs` were found before and after a training at this rate, if there are enough."""
    if pairs < PROBE:
        logger.info("the result was not measured: %d examples are held out, and %d are needed", pairs, PROBE)
        return
    found = f"{after:.0%} of {pairs} held-out queries find their own document first, {before:.0%} before"
    if RULES["lost_accuracy"].beyond(before - after):
        logger.warning("%s: a worse model, %s", found, lower_rate(rate))
    else:
        logger.info(found)


@torch.no_grad()
def _average_with(start: SparseEncoder, model: SparseEncoder, share: float) -> None:
    """Replace the weights of `model`, in place, by the mean with those of `start`, which count for `share`.

    Between what a model was and what a training made of it often lies a better one, above all for texts unlike those
    that it was trained on (Wortsman et al. 2022, arXiv 2109.01903).
    """
    before = dict(start.named_parameters())
    for name, weight in model.named_parameters():
        weight.lerp_(before[name].to(weight), share)


def _save(model: SparseEncoder, saved: SavedSettings, own: _Lengths, folder: Path) -> None:
    """Write a model with its `own` lengths and limits, or those that the recipe gives it."""
    _set_lengths(model, saved.query_length or own.query, saved.document_length or own.document)
    limits = {"query": saved.query_terms, "document": saved.document_terms}
    given = {role: k for role, k in limits.items() if k is not None}
    for transformer, _ in splade_modules(model):
        if given:
            kept = getattr(transformer.auto_model.config, "active_terms", None) or {}
            transformer.auto_model.config.active_terms = {**kept, **given}
        if saved.query_idf is not None:
            transformer.auto_model.config.query_idf = saved.query_idf
        transformer.to(getattr(torch, saved.dtype))  # a table of weights is small, and stays exact
    model.similarity_fn_name = model.similarity_fn_name  # chosen when first asked for, as by a checkpoint's card
    model.save_pretrained(str(folder))


def _arguments(
    model: SparseEncoder, recipe: Recipe, columns: list[str], folder: Path
) -> SparseEncoderTrainingArguments:
    settings = recipe.training
    roles = {column: "query" if column == "query" else "document" for column in columns}
    own_rate = None if recipe.queries is None else recipe.queries.learning_rate
    prompts = {column: model.prompts[role] for column, role in roles.items() if model.prompts.get(role)}
    arguments = SparseEncoderTrainingArguments(
        **settings.trainer_arguments(model.device, folder, recipe.seed),
        accelerator_config={"split_batches": True},  # of all processes together: each takes its part of a batch
        # A micro batch goes through one of the two alone, a whole batch through both before gradients are exchanged.
        ddp_find_unused_parameters=settings.micro_batch is not None and queries_learn_apart(model),
        learning_rate_mapping={} if own_rate is None else {PARAMETERS: own_rate},
        lr_scheduler_type="linear",
        # A text twice in a batch would be its own negative; a teacher scores both alike.
        batch_sampler=InOrder if recipe.data.topical else BatchSamplers.NO_DUPLICATES,
        router_mapping=roles,
        prompts=prompts or None,
        logging_first_step=True,
        dataloader_drop_last=True,
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # one process never spreads over several GPUs: torchrun does that
    return arguments


class _Lengths(NamedTuple):
    """Tokens of a query and of a document that a model reads; None for as many as it can."""

    query: int | None
    document: int | None


def _lengths(model: SparseEncoder) -> _Lengths:
    (queries, _), (documents, _) = splade_modules(model)[0], splade_modules(model)[-1]
    table = static_embedding(model, "query")
    query = queries.query_length if table is None else table.tokenizer.model_max_length
    return _Lengths(query, documents.document_length)


def _set_lengths(model: SparseEncoder, query: int | None, document: int | None) -> None:
    for transformer, _ in splade_modules(model):
        transformer.query_length, transformer.document_length = query, document
    table = static_embedding(model, "query")
    if table is not None:
        table.tokenizer.model_max_length = query
