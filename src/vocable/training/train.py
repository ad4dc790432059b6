"""Recipe -> SparseEncoder, on the host library's trainer.

Everything is made in `OUTPUT.partial`: tokens, examples and checkpoints, so that the same command goes on after a kill.
The finished model is renamed into place.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.sampler import BatchSamplers
from sentence_transformers.sparse_encoder import SparseEncoderTrainer, SparseEncoderTrainingArguments
from sentence_transformers.sparse_encoder.callbacks.splade_callbacks import SpladeRegularizerWeightSchedulerCallback
from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss
from transformers import AutoModelForMaskedLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from vocable.adapt.calibrate import calibrate
from vocable.adapt.mlm_head import add_mlm_head
from vocable.data import read_texts
from vocable.encoder.fuse import splade_modules
from vocable.encoder.load import load, locate
from vocable.encoder.precision import native_bfloat16
from vocable.errors import ArgumentError, RecipeError
from vocable.storage import replacing
from vocable.training.checkpoints import last_checkpoint
from vocable.training.dropout import set_dropout
from vocable.training.examples import load_examples
from vocable.training.monitor import EvaluateDuringTraining, RankingMonitor
from vocable.training.pretrain import pretrain
from vocable.training.progress import ProgressLog
from vocable.training.recipe import Recipe, Saved


def train(recipe: Recipe, output: str | Path, *, resume: bool = True) -> SparseEncoder:
    """Carry out a recipe and leave the model in `output`, beside the recipe and the log.

    Args:
        recipe: what `vocable.training.recipe.read_recipe` or `make_recipe` gives.
        output: a folder that is not there yet. Work in progress is kept in `output` + ".partial"; the same call goes on
            from its last checkpoint.
        resume: False throws work in progress away and starts anew.

    Raises:
        ArgumentError: the output exists.
        RecipeError: the work in progress belongs to another recipe.
        DataError, ModelError: what the recipe names cannot be read.
    """
    output = Path(output)
    if output.exists():
        raise ArgumentError(f"{output} is already there: name another output, or remove it")
    work = output.with_name(output.name + ".partial")
    if not resume and work.exists():
        shutil.rmtree(work)
    _claim(work, recipe)
    model = load(_starting_point(recipe, work), pooling=recipe.pooling)
    _fine_tune(model, recipe, work / "train")
    finished = work / "model"
    _save(model, recipe.saved, finished)
    for kept in ("recipe.json", "log.jsonl"):
        shutil.copy(work / kept, finished / kept)
    os.replace(finished, output)
    shutil.rmtree(work)
    return load(output)


def _claim(work: Path, recipe: Recipe) -> None:
    """Make the work folder this recipe's own."""
    written, text = work / "recipe.json", recipe.model_dump_json(indent=2, exclude_none=True)
    if not written.exists():
        work.mkdir(parents=True, exist_ok=True)
        (work / "log.jsonl").touch()
        with replacing(written) as file:
            file.write(text.encode())
    elif written.read_text(encoding="utf-8") != text:
        raise RecipeError(
            f"{work} holds the unfinished run of another recipe: start anew without resuming, or remove it"
        )


def _starting_point(recipe: Recipe, work: Path) -> str:
    """The masked language model that the retrieval training starts from, adapted and calibrated if so asked."""
    if recipe.head == "own" and recipe.pretrain is None and recipe.calibrate is None:
        return recipe.model
    adapted = work / "adapted"
    if adapted.exists():
        return str(adapted)
    name = locate(recipe.model)
    mlm = add_mlm_head(name) if recipe.head == "new" else AutoModelForMaskedLM.from_pretrained(name)
    tokenizer = AutoTokenizer.from_pretrained(name)
    if recipe.pretrain is not None:
        texts = _texts(recipe, recipe.pretrain.texts)
        pretrain(mlm, tokenizer, texts, recipe.pretrain, work / "pretrain", seed=recipe.seed)
    mlm = _calibrated(mlm, tokenizer, recipe)
    unfinished = work / "adapted.partial"
    mlm.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    os.replace(unfinished, adapted)
    return str(adapted)


def _calibrated(mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, recipe: Recipe) -> PreTrainedModel:
    if recipe.calibrate is None:
        return mlm
    settings = recipe.calibrate
    probe = [text for _, text in zip(range(1000), _texts(recipe, [settings.texts]), strict=False)]
    return calibrate(mlm, tokenizer, probe, activation_rate=settings.activation_rate, shift=settings.shift).mlm


def _texts(recipe: Recipe, places: list[str]) -> Iterator[str]:
    for place in places:
        yield from read_texts(recipe.place(place))


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
    set_dropout(model, settings.dropout)
    _set_lengths(model, settings.query_length, settings.document_length)
    model.model_card_data.generate_widget_examples = False  # they would be encoded anew at every checkpoint
    monitor = RankingMonitor(SparseMultipleNegativesRankingLoss(model, scale=1 / settings.temperature))
    loss = SpladeLoss(
        model,
        monitor,
        query_regularizer_weight=settings.regularizers.query,
        document_regularizer_weight=settings.regularizers.document,
    )
    callbacks = [SpladeRegularizerWeightSchedulerCallback(loss, "quadratic", 1 / 3)]
    columns = next(iter(examples.values())).column_names
    trainer = SparseEncoderTrainer(
        model, _arguments(model, recipe, columns, folder), train_dataset=examples, loss=loss, callbacks=callbacks
    )
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    log = ProgressLog("train", folder.with_name("log.jsonl"), monitor.figures)
    if recipe.evaluation is not None:
        trainer.add_callback(
            EvaluateDuringTraining(recipe.evaluation, recipe.place(recipe.evaluation.dataset), trainer)
        )
    trainer.add_callback(log)
    trainer.train(resume_from_checkpoint=last_checkpoint(folder))


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
        batch_sampler=BatchSamplers.NO_DUPLICATES,  # a text twice in a batch would be its own negative
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
    model.to(getattr(torch, saved.dtype))
    model.save_pretrained(str(folder))


def _set_lengths(model: SparseEncoder, query: int, document: int) -> None:
    for transformer, _ in splade_modules(model):
        transformer.query_length, transformer.document_length = query, document
