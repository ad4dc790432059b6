"""Recipe -> SparseEncoder, on the host library's trainer.

Everything is made in `OUTPUT.partial`: tokens, examples and checkpoints, so that the same command goes on after a kill.
The finished model is renamed into place.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch
from datasets import DatasetDict
from pydantic import ValidationError
from sentence_transformers import SparseEncoder
from sentence_transformers.base.sampler import BatchSamplers
from sentence_transformers.sparse_encoder import SparseEncoderTrainer, SparseEncoderTrainingArguments
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from vocable.encoder.encode import in_bfloat16
from vocable.encoder.fuse import splade_modules
from vocable.encoder.load import every_pooling_allowed, load
from vocable.encoder.roles import static_embedding
from vocable.errors import ArgumentError, DataError, RecipeError
from vocable.storage import ANOTHER, RECIPE, partial_of, refuse_existing, replacing
from vocable.training import pretrain, processes
from vocable.training.batch_statistics import EvaluateDuringTraining, Monitor
from vocable.training.data import InOrder, prepare
from vocable.training.guard import Guard, refuse_stopped
from vocable.training.momentum import FILE, MomentumState
from vocable.training.objective import MeasureWackiness, Objective, ObjectiveState, make_objective
from vocable.training.recipe import Recipe, SavedSettings
from vocable.training.stages import PARAMETERS, PRETRAIN, PROBE_TEXTS, ValidWeights, queries_learn_apart, starting_point
from vocable.training.trainer import ProgressLog, last_checkpoint, set_dropout

LOG = "log.jsonl"  # beside the model, as is the recipe


def train(recipe: Recipe, output: str | Path, *, resume: bool = True) -> SparseEncoder:
    """Carry out a recipe and leave the model in `output`, beside the recipe and the log.

    Args:
        recipe: what `vocable.training.recipe.read_recipe` or `make_recipe` gives.
        output: a folder that is not there yet, or what this very recipe made. Work in progress is kept in `output` +
            ".partial"; the same call goes on from its last checkpoint.
        resume: False throws work in progress away and starts anew.

    Raises:
        ArgumentError: the output is something else.
        RecipeError: the recipe needs what is not shipped, or the work in progress belongs to another recipe.
        DataError, ModelError: what the recipe names cannot be read.
        CollapseError: the guard has stopped the run, now or in an earlier call.
    """
    recipe.check_needs()
    output = Path(output)
    if made_by(recipe, output):
        return load(output)
    refuse_existing(output)
    processes.join()
    _check_split(recipe)
    work = partial_of(output)
    with processes.first_alone():
        if processes.is_first():
            _claim(work, recipe, resume)
        start = starting_point(recipe, work)
    _fine_tune(load(start, pooling=recipe.pooling, activation=recipe.activation), recipe, work)
    if processes.is_first():
        _finish(work, output)
    processes.wait()
    return load(output)


def made_by(recipe: Recipe, folder: Path) -> bool:
    """Whether this recipe made the folder, or is at it; a key that recipes did not have then counts as its default."""
    try:
        found = Recipe.model_validate_json((folder / RECIPE).read_bytes())
    except (OSError, ValidationError):
        return False
    return found.model_dump() == recipe.model_dump()


def _check_split(recipe: Recipe) -> None:
    settings, parts = recipe.training, processes.count()
    if settings.batch_size % parts:
        size = settings.batch_size
        raise RecipeError(f"training.batch_size: {size} examples cannot be shared equally by {parts} processes")
    own_encoder = recipe.queries is not None and (recipe.queries.model is not None or recipe.queries.trainable)
    if parts > 1 and settings.micro_batch is not None and own_encoder:
        # The last micro batch, one of documents, has the gradients exchanged, and those of queries would be left out.
        raise RecipeError("training.micro_batch and queries that learn apart from documents need a single process")


def _claim(work: Path, recipe: Recipe, resume: bool) -> None:
    """Make the work folder this recipe's own."""
    if not resume and (work / RECIPE).exists():
        shutil.rmtree(work)
    if not (work / RECIPE).exists():
        if work.exists() and any(path.name != LOG and not path.name.startswith(".") for path in work.iterdir()):
            raise ArgumentError(f"{work} is already there and something else: {ANOTHER}")
        work.mkdir(parents=True, exist_ok=True)
        (work / LOG).touch()
        with replacing(work / RECIPE) as file:
            file.write(recipe.model_dump_json(indent=2).encode())
    elif not made_by(recipe, work):
        raise RecipeError(
            f"{work} holds the unfinished run of another recipe: start anew without resuming, or remove it"
        )
    refuse_stopped(work)


def _fine_tune(model: SparseEncoder, recipe: Recipe, work: Path) -> None:
    """Train the model in place, from the last checkpoint in `work` on; the first process leaves it in work/model."""
    settings = recipe.training
    with processes.first_alone():
        lessons = prepare(recipe, model, work / "examples")
    set_dropout(model, settings.dropout)
    _set_lengths(model, settings.query_length, settings.document_length)
    model.model_card_data.generate_widget_examples = False  # they would be encoded anew at every checkpoint
    monitor = Monitor(temperature=settings.yardstick.temperature, cosine=settings.yardstick.cosine)
    objective = make_objective(model, settings, lessons, monitor)
    trainer = _trainer(model, objective, recipe, lessons.examples, work / "train")
    texts = next(iter(lessons.examples.values()))[:PROBE_TEXTS]["positive"]
    if measured := settings.regularizers.needing("wackiness"):
        trainer.add_callback(MeasureWackiness(objective.penalties, measured, lessons.examples, recipe.seed))
    if objective.momentum is not None:
        trainer.add_callback(MomentumState(objective.momentum))
    trainer.add_callback(guard := Guard(recipe, model, texts, monitor, work))
    if processes.is_first():
        if recipe.evaluation is not None and recipe.evaluation.every is not None:
            places = [recipe.place(place) for place in recipe.evaluation.datasets]
            trainer.add_callback(EvaluateDuringTraining(recipe.evaluation, places, trainer))
        trainer.add_callback(ProgressLog("train", work / LOG, monitor.figures))
    with every_pooling_allowed():  # the trainer opens its checkpoints with stock classes
        then = None if objective.momentum is None else FILE
        trainer.train(resume_from_checkpoint=last_checkpoint(work / "train", then))
    guard.check()
    if trainer.state.global_step < settings.steps:
        batch = f"a batch of {settings.batch_size} examples"
        raise DataError(f"{batch} in which no text is there twice cannot be made of data.examples: lower batch_size")
    if processes.is_first():
        _save(model, recipe.saved, work / "model")


def _finish(work: Path, output: Path) -> None:
    """Put the finished model in its place, and clear up."""
    for kept in (RECIPE, LOG):
        shutil.copy(work / kept, work / "model" / kept)
    if (adapting := work / PRETRAIN / pretrain.LOG).exists():
        shutil.copy(adapting, work / "model" / pretrain.KEPT_LOG)
    os.replace(work / "model", output)
    shutil.rmtree(work)


def _trainer(
    model: SparseEncoder, objective: Objective, recipe: Recipe, examples: DatasetDict, folder: Path
) -> SparseEncoderTrainer:
    columns = [column for column in next(iter(examples.values())).column_names if column != "label"]
    trainer = SparseEncoderTrainer(
        model,
        _arguments(model, recipe, columns, folder),
        train_dataset=examples,
        loss=objective,
        callbacks=[ObjectiveState(objective), ValidWeights()],
    )
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    return trainer


def _arguments(
    model: SparseEncoder, recipe: Recipe, columns: list[str], folder: Path
) -> SparseEncoderTrainingArguments:
    settings = recipe.training
    roles = {column: "query" if column == "query" else "document" for column in columns}
    own_rate = None if recipe.queries is None else recipe.queries.learning_rate
    prompts = {column: model.prompts[role] for column, role in roles.items() if model.prompts.get(role)}
    arguments = SparseEncoderTrainingArguments(
        output_dir=str(folder),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_size,
        accelerator_config={"split_batches": True},  # of all processes together: each takes its part of a batch
        # A micro batch goes through one of the two alone, a whole batch through both before gradients are exchanged.
        ddp_find_unused_parameters=settings.micro_batch is not None and queries_learn_apart(model),
        gradient_accumulation_steps=settings.gradient_accumulation,
        learning_rate=settings.learning_rate,
        learning_rate_mapping={} if own_rate is None else {PARAMETERS: own_rate},
        weight_decay=settings.weight_decay,
        warmup_steps=settings.warmup_share,
        lr_scheduler_type="linear",
        bf16=in_bfloat16(settings.dtype, model.device),
        use_cpu=model.device.type == "cpu",
        # A text twice in a batch would be its own negative; a teacher scores both alike.
        batch_sampler=InOrder if recipe.data.topical else BatchSamplers.NO_DUPLICATES,
        router_mapping=roles,
        prompts=prompts or None,
        logging_steps=settings.log_every,
        logging_first_step=True,
        save_steps=settings.save_every,
        save_total_limit=2,
        seed=recipe.seed,
        dataloader_drop_last=True,
        dataloader_pin_memory=model.device.type == "cuda",
        disable_tqdm=True,
        report_to="none",
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # one process never spreads over several GPUs: torchrun does that
    return arguments


def _save(model: SparseEncoder, saved: SavedSettings, folder: Path) -> None:
    _set_lengths(model, saved.query_length, saved.document_length)
    limits = {"query": saved.query_terms, "document": saved.document_terms}
    if any(limits.values()):
        for transformer, _ in splade_modules(model):
            transformer.auto_model.config.active_terms = {role: k for role, k in limits.items() if k is not None}
    for transformer, _ in splade_modules(model):  # a table of weights is small, and stays exact
        transformer.to(getattr(torch, saved.dtype))
    model.save_pretrained(str(folder))


def _set_lengths(model: SparseEncoder, query: int, document: int) -> None:
    for transformer, _ in splade_modules(model):
        transformer.query_length, transformer.document_length = query, document
    table = static_embedding(model, "query")
    if table is not None:
        table.tokenizer.model_max_length = query
