"""Recipe -> SparseEncoder, on the host library's trainer.

Everything is made in `OUTPUT.partial`: tokens, examples and checkpoints, so that the same command goes on after a kill.
The finished model is renamed into place.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import torch
from datasets import DatasetDict
from pydantic import ValidationError
from sentence_transformers import SparseEncoder
from sentence_transformers.base.sampler import BatchSamplers
from sentence_transformers.sparse_encoder import SparseEncoderTrainer, SparseEncoderTrainingArguments
from sentence_transformers.sparse_encoder.callbacks.splade_callbacks import SpladeRegularizerWeightSchedulerCallback
from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss
from torch import nn
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from vocable.encoder.fuse import splade_modules
from vocable.encoder.load import load
from vocable.encoder.precision import native_bfloat16
from vocable.errors import RecipeError
from vocable.storage import replacing
from vocable.training.checkpoints import last_checkpoint
from vocable.training.dropout import set_dropout
from vocable.training.examples import load_examples
from vocable.training.monitor import EvaluateDuringTraining, RankingMonitor
from vocable.training.progress import ProgressLog
from vocable.training.recipe import Recipe, Saved
from vocable.training.starting_point import starting_point
from vocable.training.teacher import DenseTeacher, DistilledRanking, teach
from vocable.training.topics import InOrder, topical_order
from vocable.unfinished import partial_of, refuse_occupied

RECIPE, LOG = "recipe.json", "log.jsonl"  # beside the model


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
    """
    recipe.check_needs()
    output = Path(output)
    if made_by(recipe, output):
        return load(output)
    refuse_occupied(output)
    work = partial_of(output)
    if not resume and work.exists():
        shutil.rmtree(work)
    _claim(work, recipe)
    model = load(starting_point(recipe, work), pooling=recipe.pooling)
    _fine_tune(model, recipe, work / "train")
    finished = work / "model"
    _save(model, recipe.saved, finished)
    for kept in (RECIPE, LOG):
        shutil.copy(work / kept, finished / kept)
    os.replace(finished, output)
    shutil.rmtree(work)
    return load(output)


def made_by(recipe: Recipe, folder: Path) -> bool:
    """Whether this recipe made the folder, or is at it; a key that recipes did not have then counts as its default."""
    try:
        found = Recipe.model_validate_json((folder / RECIPE).read_bytes())
    except (OSError, ValidationError):
        return False
    return found.model_dump() == recipe.model_dump()


def _claim(work: Path, recipe: Recipe) -> None:
    """Make the work folder this recipe's own."""
    if not (work / RECIPE).exists():
        work.mkdir(parents=True, exist_ok=True)
        (work / LOG).touch()
        with replacing(work / RECIPE) as file:
            file.write(recipe.model_dump_json(indent=2, exclude_none=True).encode())
    elif not made_by(recipe, work):
        raise RecipeError(
            f"{work} holds the unfinished run of another recipe: start anew without resuming, or remove it"
        )


def _fine_tune(model: SparseEncoder, recipe: Recipe, folder: Path) -> None:
    settings = recipe.training
    draws = settings.steps * settings.batch_size * settings.gradient_accumulation
    places = [recipe.place(place) for place in recipe.data.examples]
    examples = load_examples(
        places,
        recipe.data,
        draws=draws,
        batch_size=settings.batch_size,
        seed=recipe.seed,
        cache=folder.with_name("examples"),
    )
    ranking: nn.Module = SparseMultipleNegativesRankingLoss(model, scale=1 / settings.temperature)
    if settings.distillation is not None:
        examples, dense, teacher = teach(examples, settings.distillation, folder.with_name("examples"))
        ranking = DistilledRanking(ranking, teacher, settings.distillation, settings.temperature)
        if recipe.data.topical:
            examples = _by_topic(examples, dense, settings.batch_size, recipe.seed)
    set_dropout(model, settings.dropout)
    _set_lengths(model, settings.query_length, settings.document_length)
    model.model_card_data.generate_widget_examples = False  # they would be encoded anew at every checkpoint
    monitor = RankingMonitor(ranking)
    loss = SpladeLoss(
        model,
        monitor,
        query_regularizer_weight=settings.regularizers.query,
        document_regularizer_weight=settings.regularizers.document,
    )
    callbacks = [SpladeRegularizerWeightSchedulerCallback(loss, "quadratic", 1 / 3)]
    columns = [column for column in next(iter(examples.values())).column_names if column != "label"]
    trainer = SparseEncoderTrainer(
        model, _arguments(model, recipe, columns, folder), train_dataset=examples, loss=loss, callbacks=callbacks
    )
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    log = ProgressLog("train", folder.with_name(LOG), monitor.figures)
    if recipe.evaluation is not None:
        places = [recipe.place(place) for place in recipe.evaluation.datasets]
        trainer.add_callback(EvaluateDuringTraining(recipe.evaluation, places, trainer))
    trainer.add_callback(log)
    trainer.train(resume_from_checkpoint=last_checkpoint(folder))


def _by_topic(examples: DatasetDict, teacher: DenseTeacher, batch_size: int, seed: int) -> DatasetDict:
    """Each source in batches of examples that are near each other: by the sum of query and positive."""
    rng = np.random.default_rng(seed)
    ordered = {}
    for name, source in examples.items():
        embeddings = teacher.embeddings[np.array(source["label"])][:, :2].sum(axis=1)
        ordered[name] = source.select(topical_order(embeddings, batch_size, rng))
    return DatasetDict(ordered)


def _arguments(
    model: SparseEncoder, recipe: Recipe, columns: list[str], folder: Path
) -> SparseEncoderTrainingArguments:
    settings = recipe.training
    roles = {column: "query" if column == "query" else "document" for column in columns}
    prompts = {column: model.prompts[role] for column, role in roles.items() if model.prompts.get(role)}
    return SparseEncoderTrainingArguments(
        output_dir=str(folder),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.gradient_accumulation,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        warmup_steps=settings.warmup_share,
        lr_scheduler_type="linear",
        bf16=native_bfloat16(model.device),
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


def _save(model: SparseEncoder, saved: Saved, folder: Path) -> None:
    _set_lengths(model, saved.query_length, saved.document_length)
    limits = {"query": saved.query_terms, "document": saved.document_terms}
    if any(limits.values()):
        for transformer, _ in splade_modules(model):
            transformer.auto_model.config.active_terms = {role: k for role, k in limits.items() if k is not None}
    model.to(getattr(torch, saved.dtype))
    model.save_pretrained(str(folder))


def _set_lengths(model: SparseEncoder, query: int, document: int) -> None:
    for transformer, _ in splade_modules(model):
        transformer.query_length, transformer.document_length = query, document
