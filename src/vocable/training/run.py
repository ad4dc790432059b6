"""Carry out the run of a recipe, with the trainer of sentence-transformers.

`OUTPUT.partial` keeps tokens, examples and checkpoints. An interrupted run resumes from them when repeated. The
finished model is renamed to its output folder.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router
from sentence_transformers.base.sampler import BatchSamplers
from sentence_transformers.sparse_encoder import SparseEncoderTrainer, SparseEncoderTrainingArguments
from transformers.trainer_callback import PrinterCallback, TrainerCallback

from vocable.adapt.rescale import PROBE_TEXTS
from vocable.core.progress import StagedProgress
from vocable.core.storage import RECIPE, finish, finished, resumable
from vocable.data import tolerating
from vocable.encoding.graph import refuse_exported
from vocable.encoding.hub import trusting
from vocable.errors import DataError, RecipeError
from vocable.torch_models.asymmetric import positions, route, static_embedding
from vocable.torch_models.cpu import float32_attention, use_few_shapes
from vocable.torch_models.fuse import every_pooling_allowed, freeze_embeddings, splade_modules
from vocable.torch_models.opening import without_bars
from vocable.torch_models.provenance import record
from vocable.torch_models.sparse_encoder import load_sparse_encoder, write_model
from vocable.training import callbacks, distributed, log, stages
from vocable.training.data import InOrder, TrainingData, WithoutRepeats, load_training_data
from vocable.training.guard import Guard, refuse_stopped
from vocable.training.mined_negatives import MineDuringTraining
from vocable.training.objective import Objective, make_objective
from vocable.training.outcome import measure_held_out, report
from vocable.training.pretraining.pretrain import KEPT_LOG
from vocable.training.recipe import Recipe, SavedSettings, TrainingSettings

logger = logging.getLogger(__name__)

QUERY_PARAMETERS = r"sub_modules\.query\."  # sentence-transformers' names of the query encoder's weights


def carry_out(recipe: Recipe, output: Path, *, resume: bool, further: Sequence[TrainerCallback] = ()) -> SparseEncoder:
    """Train a model with `further` callbacks, or load the model that this recipe made in `output` earlier."""
    recipe.check_needs()
    settings, trust = recipe.made_from(), recipe.trust_remote_code
    if finished(output, settings, name=RECIPE):
        return load_sparse_encoder(output, trust_remote_code=trust)
    distributed.join()
    _check_processes(recipe)
    with ExitStack() as stack:
        stack.enter_context(trusting(trust))
        stack.enter_context(tolerating(recipe.data.skip_bad))
        with distributed.first_alone():
            work = stack.enter_context(resumable(output, settings, name=RECIPE, anew=not resume))
            refuse_stopped(work)
        stages.check_sources(recipe, work)
        with StagedProgress(_work(recipe)) as progress:
            progress.begin(stages.PRETRAIN)
            start = stages.carry_out_stages(recipe, work)
            progress.begin("train")
            _fine_tune(start, recipe, work, further)
        if distributed.is_first():
            shutil.copy(work / log.LOG, work / "model" / log.LOG)
            if find_spec("matplotlib") is not None:
                log.draw(log.read_log(work / log.LOG), work / "model" / log.FIGURE)
            if (adapting := work / stages.PRETRAIN / log.LOG).exists():
                shutil.copy(adapting, work / "model" / KEPT_LOG)
            finish(work, output, work / "model", name=RECIPE)
        distributed.wait()
    return load_sparse_encoder(output, trust_remote_code=trust)


def _check_processes(recipe: Recipe) -> None:
    """Raise `RecipeError` if the recipe cannot run on this number of processes."""
    for part, settings in (("training", recipe.training), ("pretrain", recipe.pretrain)):
        if settings is not None:
            distributed.check_shared(f"{part}.batch_size", settings.batch_size, RecipeError)
    own_encoder = recipe.queries is not None and (recipe.queries.model is not None or recipe.queries.trainable)
    if distributed.count() > 1 and recipe.training.micro_batch is not None and own_encoder:
        # Gradients are exchanged in the last micro batch, which has only documents: query gradients would be lost.
        raise RecipeError("training.micro_batch with a separate query encoder needs a single process")


def _work(recipe: Recipe) -> dict[str, float]:
    """Return the tokens that each stage with steps reads, in proportion to its time; {} if there is one stage."""
    training, adapting = recipe.training, recipe.pretrain
    if adapting is None:
        return {}
    length = training.query_length + training.document_length * (1 + recipe.data.negatives)
    with_steps = {stages.PRETRAIN: (adapting, adapting.max_length), "train": (training, length)}
    return {
        name: settings.steps * settings.batch_size * settings.gradient_accumulation * tokens
        for name, (settings, tokens) in with_steps.items()
    }


def _fine_tune(start: str, recipe: Recipe, work: Path, further: Sequence[TrainerCallback]) -> None:
    """Train the model `start`, from its last checkpoint in `work`; the first process saves it to work/model."""
    settings = recipe.training
    model = load_sparse_encoder(
        start, pooling=recipe.pooling, activation=recipe.activation, special_terms=recipe.special_terms
    )
    refuse_exported(model)
    if recipe.queries is not None and recipe.queries.freeze_documents:
        for module in route(model, "document"):
            module.requires_grad_(False)
    if settings.freeze_embeddings:
        freeze_embeddings(model)
    with distributed.first_alone():
        data = load_training_data(recipe, model, work / stages.EXAMPLES)
    own_lengths = _prepare(model, settings)
    if data.plan is not None:
        distributed.by_first(partial(data.plan.mine, model, step=0))
    objective = make_objective(model, settings, data)
    if distributed.is_first():
        initial = measure_held_out(model, data.held_out)
    # The trainer, the guard, and the evaluation during the training.
    arguments = _arguments(model, recipe, data, work / "train")
    trainer = RetrievalTrainer(model, arguments, train_dataset=data.examples, loss=objective)
    texts = next(iter(data.examples.values())).select_columns("positive")[:PROBE_TEXTS]["positive"]
    guard = Guard(recipe, model, texts, objective.monitor, work)
    evaluating = None
    if recipe.evaluation is not None and recipe.evaluation.every is not None:
        evaluating = callbacks.EvaluateDuringTraining(recipe.evaluation, recipe.place, trainer, work)
    trainer.remove_callback(PrinterCallback)
    for callback in (*_callbacks(settings, data, objective, guard, evaluating, work), *further):
        trainer.add_callback(callback)
    with ExitStack() as stack:
        stack.enter_context(every_pooling_allowed())  # the trainer loads its checkpoints with stock classes
        stack.enter_context(distributed.naming_lost_processes())
        for transformer, _ in splade_modules(model):
            stack.enter_context(float32_attention(transformer.auto_model))
        trainer.train(resume_from_checkpoint=callbacks.last_checkpoint(work / "train"))
    guard.check()
    if trainer.state.global_step < trainer.state.max_steps:
        raise DataError(f"data.examples has too few distinct texts for batch_size {settings.batch_size}")
    # The first process chooses the weights, reports the outcome, and saves the model.
    if distributed.is_first():
        if evaluating is not None:
            evaluating.load_best(model)
        if recipe.saved.start_share:
            average_with(load_sparse_encoder(start, device=str(model.device)), model, recipe.saved.start_share)
        callbacks.refuse_non_finite("training", model, settings.learning_rate)
        report(initial, measure_held_out(model.eval(), data.held_out), recipe, guard.history)
        record(model, "train", **_made_with(recipe))
        _save(model, recipe.saved, own_lengths, work / "model")


def _callbacks(
    settings: TrainingSettings,
    data: TrainingData,
    objective: Objective,
    guard: Guard,
    evaluating: TrainerCallback | None,
    work: Path,
) -> Iterator[TrainerCallback]:
    """Yield the callbacks of the trainer, which calls them in this order."""
    yield callbacks.ValidWeights()  # the momentum encoder, the guard and the evaluation see valid weights
    yield callbacks.ObjectiveState(objective)
    yield callbacks.LogLastStep()
    yield guard
    if evaluating is not None:
        yield evaluating
    if distributed.is_first():
        yield callbacks.ProgressLog("train", work / log.LOG, objective.monitor.figures)
    yield callbacks.MarkComplete()  # all callbacks that add files to a checkpoint have done so
    if settings.micro_batch is not None:
        yield callbacks.ReleaseMemory()
    if data.plan is not None:
        yield MineDuringTraining(data.plan)  # after `MarkComplete`: mining takes long, and may be interrupted


def _made_with(recipe: Recipe) -> dict[str, Any]:
    """Return the main settings of a training, for the card of its model; recipe.json has all."""
    training = recipe.training
    name = Path(recipe.model).name if Path(recipe.model).is_dir() else recipe.model
    return {
        "start": name,
        "steps": training.steps,
        "batch_size": training.batch_size * training.gradient_accumulation,
        "learning_rate": training.learning_rate,
        "losses": " + ".join(loss.name for loss in training.losses),
    }


class _NoCardCallback(TrainerCallback):
    """Collects nothing: `vocable.torch_models.card` writes the card."""

    def __init__(self, arguments: object) -> None:
        del arguments


class RetrievalTrainer(SparseEncoderTrainer):
    """The trainer of sentence-transformers, without its model card and with a batch for each step of the run."""

    model_card_callback_class = _NoCardCallback

    def get_batch_sampler(self, dataset: Dataset, batch_size: int, drop_last: bool, **others: Any) -> Any:
        if self.args.batch_sampler == BatchSamplers.NO_DUPLICATES:
            return WithoutRepeats(dataset, batch_size, drop_last, **others)
        return super().get_batch_sampler(dataset, batch_size, drop_last, **others)

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        with without_bars():
            super()._load_from_checkpoint(checkpoint_path)


def queries_learn_apart(model: SparseEncoder) -> bool:
    """Return True if a training changes weights that only the query encoder has."""
    weights = [weight for module in route(model, "query") for weight in module.parameters()]
    return isinstance(model[0], Router) and any(weight.requires_grad for weight in weights)


def _arguments(
    model: SparseEncoder, recipe: Recipe, data: TrainingData, folder: Path
) -> SparseEncoderTrainingArguments:
    settings = recipe.training
    columns = [column for column in next(iter(data.examples.values())).column_names if column != "label"]
    roles = {column: "query" if column == "query" else "document" for column in columns}
    own_rate = None if recipe.queries is None else recipe.queries.learning_rate
    prompts = {column: model.prompts[role] for column, role in roles.items() if model.prompts.get(role)}
    return callbacks.trainer_arguments(
        SparseEncoderTrainingArguments,
        settings,
        model.device,
        folder,
        recipe.seed,
        # A micro batch uses only one of the two encoders; a whole batch uses both before gradients are exchanged.
        ddp_find_unused_parameters=settings.micro_batch is not None and queries_learn_apart(model),
        learning_rate_mapping={} if own_rate is None else {QUERY_PARAMETERS: own_rate},
        lr_scheduler_type="linear",
        # A repeated text in a batch would be its own negative; a teacher scores both equally.
        batch_sampler=InOrder if recipe.data.topical or recipe.training.mine else BatchSamplers.NO_DUPLICATES,
        router_mapping=roles,
        prompts=prompts or None,
        dataloader_drop_last=True,
    )


Lengths = tuple[int | None, int | None]  # tokens of a query and of a document; None for the model's maximum


def _prepare(model: SparseEncoder, settings: TrainingSettings) -> Lengths:
    """Set the dropout and lengths of the model for its training; return its previous lengths."""
    callbacks.set_dropout(model, settings.dropout)
    for transformer, _ in splade_modules(model):
        use_few_shapes(transformer.auto_model)
    (queries, _), (documents, _) = splade_modules(model)[0], splade_modules(model)[-1]
    table = static_embedding(model, "query")
    query_length = queries.query_length if table is None else table.tokenizer.model_max_length
    previous = query_length, documents.document_length
    _set_lengths(model, settings.query_length, settings.document_length)
    limit = min(positions(transformer) for transformer, _ in splade_modules(model))
    lengths = {"query_length", "document_length"} & settings.model_fields_set  # not the defaults
    for key in lengths if distributed.is_first() else ():
        length = getattr(settings, key)
        if length > limit:
            logger.warning("training.%s: the model has %d positions, where texts are cut, not %d", key, limit, length)
    return previous


def _set_lengths(model: SparseEncoder, query: int | None, document: int | None) -> None:
    for transformer, _ in splade_modules(model):
        transformer.query_length, transformer.document_length = query, document
    if (table := static_embedding(model, "query")) is not None:
        table.tokenizer.model_max_length = query


@torch.no_grad()
def average_with(start: SparseEncoder, model: SparseEncoder, share: float) -> None:
    """Replace the weights of `model`, in place, by their mean with the weights of `start`, which count for `share`.

    The mean is often better than both, above all on texts unlike the training texts (Wortsman et al. 2022, arXiv
    2109.01903).
    """
    initial = dict(start.named_parameters())
    for name, weight in model.named_parameters():
        weight.lerp_(initial[name].to(weight), share)


def _save(model: SparseEncoder, saved: SavedSettings, lengths: Lengths, folder: Path) -> None:
    """Write a model with the lengths and limits of the recipe; by default with `lengths` and the model's limits."""
    _set_lengths(model, saved.query_length or lengths[0], saved.document_length or lengths[1])
    limits = {"query": saved.query_terms, "document": saved.document_terms}
    changed = {role: k for role, k in limits.items() if k is not None}
    for transformer, _ in splade_modules(model):
        config = transformer.auto_model.config
        if changed:
            config.active_terms = {**(getattr(config, "active_terms", None) or {}), **changed}
        if saved.query_idf is not None:
            config.query_idf = saved.query_idf
        transformer.to(getattr(torch, saved.dtype))  # a table of weights is small and stays exact
        if (backend := getattr(transformer.tokenizer, "backend_tokenizer", None)) is not None:
            backend.no_truncation()  # both are set for each batch: a run resumed after its last step lacks them
            backend.no_padding()
    write_model(model, folder)
