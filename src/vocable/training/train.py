"""Train retrievers by recipes, with the trainer of sentence-transformers.

Tokens, examples and checkpoints are kept in `OUTPUT.partial`, where an interrupted run resumes when repeated; the
finished model is renamed into place.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from sentence_transformers import SparseEncoder
from sentence_transformers.base.sampler import BatchSamplers
from sentence_transformers.sparse_encoder import SparseEncoderTrainer, SparseEncoderTrainingArguments
from sentence_transformers.sparse_encoder.model_card import SparseEncoderModelCardCallback
from transformers.trainer_callback import PrinterCallback, TrainerState

from vocable.adapt.rescale import PROBE_TEXTS
from vocable.data import tolerating
from vocable.encoder.cpu import float32_attention
from vocable.encoder.fuse import every_pooling_allowed, splade_modules
from vocable.encoder.graph import refuse_exported
from vocable.encoder.hub import trusting
from vocable.encoder.opening import without_bars
from vocable.encoder.sparse_encoder import load_sparse_encoder
from vocable.errors import ArgumentError, DataError, RecipeError
from vocable.figures import check_figure, save_figure
from vocable.storage import finish, finished, resumable
from vocable.training import distributed
from vocable.training.callbacks import (
    EvaluateDuringTraining,
    MarkComplete,
    ObjectiveState,
    ProgressLog,
    ValidWeights,
    last_checkpoint,
    refuse_non_finite,
)
from vocable.training.data import InOrder, TrainingData, load_training_data
from vocable.training.detector import Monitor
from vocable.training.guard import Guard, refuse_stopped
from vocable.training.objective import Objective, make_objective
from vocable.training.pretraining import pretrain
from vocable.training.recipe import Recipe, read_recipe, work_settings
from vocable.training.stages import (
    EXAMPLES,
    PRETRAIN,
    QUERY_PARAMETERS,
    carry_out_stages,
    check_sources,
    freeze_documents,
    queries_learn_apart,
)
from vocable.training.trained_model import accuracy, average_with, prepare, report, save
from vocable.training.variants import TrainingResults, effectiveness_against_flops, plan_runs, train_planned

LOG = "log.jsonl"  # beside the model


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
    """Carry out a recipe into `output`, or train several of its variants into OUTPUT/NAME and evaluate them.

    An interrupted run resumes from its last checkpoint when repeated. A folder that the same recipe made is used as it
    is.

    Args:
        recipe: a YAML file, the name of a built-in recipe, or the result of `vocable.read_recipe`.
        output: output folder (written atomically); for several runs the folder that holds theirs.
        variant: the variant of the recipe to train.
        variants: several variants, one run each; "all" for all.
        overrides: `KEY=VALUE` texts that change keys of the recipe, applied after the variant.
        sweep: `KEY=VALUE,VALUE,...`: train with each of these values of a key, for each variant, and evaluate.
        figure: with `sweep`, a file for effectiveness against FLOPS, .png or .svg.
        resume: continue unfinished work; False discards it. Finished runs stay.

    Returns:
        the model; of several runs their results, which the first process also writes to OUTPUT/results.json.

    Raises:
        ArgumentError: the output is something else or the work of another recipe, or arguments exclude each other.
        RecipeError: the recipe is invalid, or needs data, devices or code that are not shipped.
        DataError, ModelError: a source or model of the recipe cannot be read.
        CollapseError: the guard has stopped the run, now or in an earlier call.
    """
    if variant is not None and variants is not None:
        raise ArgumentError("give variant for one, or variants for several, not both")
    if figure is not None and sweep is None:
        raise ArgumentError("figure draws a sweep: give sweep, as KEY=VALUE,VALUE,...")
    several = variants is not None or sweep is not None
    if isinstance(recipe, Recipe):
        if several or variant is not None or overrides:
            raise ArgumentError("variants, overrides and a sweep need the file or name of a recipe, not a `Recipe`")
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
    """Train one model, or load the model that this recipe has made in `output`."""
    recipe.check_needs()
    kept, trust = work_settings(recipe), recipe.trust_remote_code
    if finished(output, **kept):
        return load_sparse_encoder(output, trust_remote_code=trust)
    distributed.join()
    _check_processes(recipe, distributed.count())
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
    return load_sparse_encoder(output, trust_remote_code=trust)


def _check_processes(recipe: Recipe, count: int) -> None:
    """Raise `RecipeError` if the recipe cannot run on this number of processes."""
    settings = recipe.training
    for part, size in (("training", settings.batch_size), ("pretrain", recipe.pretrain and recipe.pretrain.batch_size)):
        if size and size % count:
            raise RecipeError(f"{part}.batch_size: {size} examples cannot be shared equally by {count} processes")
    own_encoder = recipe.queries is not None and (recipe.queries.model is not None or recipe.queries.trainable)
    if count > 1 and settings.micro_batch is not None and own_encoder:
        # Gradients are exchanged in the last micro batch, which has only documents: query gradients would be lost.
        raise RecipeError("training.micro_batch with a separate query encoder needs a single process")


def _fine_tune(start: str, recipe: Recipe, work: Path) -> None:
    """Train the model `start`, from its last checkpoint in `work`; the first process saves it to work/model."""
    settings = recipe.training
    model = load_sparse_encoder(start, pooling=recipe.pooling, activation=recipe.activation)
    refuse_exported(model)
    if recipe.queries is not None and recipe.queries.freeze_documents:
        freeze_documents(model)
    with distributed.first_alone():
        data = load_training_data(recipe, model, work / EXAMPLES)
    own_lengths = prepare(model, settings)
    monitor = Monitor(settings.monitored_loss)
    objective = make_objective(model, settings, data, monitor)
    accuracy_before = accuracy(model, data.held_out) if distributed.is_first() else 0.0
    trainer = RetrievalTrainer(
        model, _arguments(model, recipe, data, work / "train"), train_dataset=data.examples, loss=objective
    )
    trainer.remove_callback(PrinterCallback)
    guard, best = _add_callbacks(trainer, recipe, data, objective, monitor, work)
    _run(trainer, model, guard, work / "train")
    if distributed.is_first():
        if best is not None:
            best.load_best(model)
        if recipe.saved.start_share:
            average_with(load_sparse_encoder(start, device=str(model.device)), model, recipe.saved.start_share)
        refuse_non_finite("training", model, settings.learning_rate)
        accuracy_after = accuracy(model.eval(), data.held_out)
        report(accuracy_before, accuracy_after, len(data.held_out), settings.learning_rate)
        save(model, recipe.saved, own_lengths, str(work / "model"))


def _add_callbacks(
    trainer: RetrievalTrainer, recipe: Recipe, data: TrainingData, objective: Objective, monitor: Monitor, work: Path
) -> tuple[Guard, EvaluateDuringTraining | None]:
    """Add the callbacks in the order in which the trainer calls them; return those with a part after the training."""
    evaluating = None
    if recipe.evaluation is not None and recipe.evaluation.every is not None:
        evaluating = EvaluateDuringTraining(recipe.evaluation, recipe.place, trainer, work)
    log = ProgressLog("train", work / LOG, monitor.figures) if distributed.is_first() else None
    texts = next(iter(data.examples.values()))[:PROBE_TEXTS]["positive"]
    guard = Guard(recipe, trainer.model, texts, monitor, work)
    for callback in (ValidWeights(), ObjectiveState(objective), guard, evaluating, log, MarkComplete()):
        if callback is not None:
            trainer.add_callback(callback)
    return guard, evaluating


def _run(trainer: RetrievalTrainer, model: SparseEncoder, guard: Guard, folder: Path) -> None:
    """Train from the last checkpoint in `folder` to the last step.

    Raises:
        CollapseError: the guard has stopped the run.
        DataError: the examples end before the last step.
    """
    with ExitStack() as stack:
        stack.enter_context(every_pooling_allowed())  # the trainer loads its checkpoints with stock classes
        stack.enter_context(distributed.together())
        for transformer, _ in splade_modules(model):
            stack.enter_context(float32_attention(transformer.auto_model))
        trainer.train(resume_from_checkpoint=last_checkpoint(folder))
    guard.check()
    if trainer.state.global_step < trainer.args.max_steps:
        raise DataError(f"data.examples has too few distinct texts for batch_size {trainer.args.train_batch_size}")


class _CardCallback(SparseEncoderModelCardCallback):
    """Collects the model card's facts, without quotations of training texts and names of folders."""

    def on_init_end(
        self, args: object, state: object, control: object, model: Any, trainer: Any, **kwargs: object
    ) -> None:
        model.model_card_data.add_tags("generated_from_trainer")
        model.model_card_data.set_losses([trainer.loss])

    def on_train_begin(self, args: object, state: TrainerState, control: object, model: Any, **kwargs: object) -> None:
        """Restore the losses that were logged before an interruption, from the checkpoint's state."""
        super().on_train_begin(args, state, control, model, **kwargs)
        for logs in state.log_history:
            at = TrainerState(epoch=logs.get("epoch"), global_step=logs["step"])
            self.on_log(args, at, control, model, logs)


class RetrievalTrainer(SparseEncoderTrainer):
    """The trainer of sentence-transformers, with a plainer model card."""

    model_card_callback_class = _CardCallback

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        with without_bars():
            super()._load_from_checkpoint(checkpoint_path)


def _arguments(
    model: SparseEncoder, recipe: Recipe, data: TrainingData, folder: Path
) -> SparseEncoderTrainingArguments:
    settings = recipe.training
    columns = [column for column in next(iter(data.examples.values())).column_names if column != "label"]
    roles = {column: "query" if column == "query" else "document" for column in columns}
    own_rate = None if recipe.queries is None else recipe.queries.learning_rate
    prompts = {column: model.prompts[role] for column, role in roles.items() if model.prompts.get(role)}
    arguments = SparseEncoderTrainingArguments(
        **settings.trainer_arguments(model.device, folder, recipe.seed),
        accelerator_config={"split_batches": True},  # batch sizes count for all processes together
        # A micro batch uses one of the two encoders, a whole batch both before gradients are exchanged.
        ddp_find_unused_parameters=settings.micro_batch is not None and queries_learn_apart(model),
        learning_rate_mapping={} if own_rate is None else {QUERY_PARAMETERS: own_rate},
        lr_scheduler_type="linear",
        # A repeated text in a batch would be its own negative; a teacher scores both equally.
        batch_sampler=InOrder if recipe.data.topical else BatchSamplers.NO_DUPLICATES,
        router_mapping=roles,
        prompts=prompts or None,
        logging_first_step=True,
        dataloader_drop_last=True,
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # several GPUs are for torchrun, one process each
    return arguments
