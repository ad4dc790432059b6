"""Carry out the stages of a recipe, from its backbone to the model that the retrieval training starts from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router

from vocable.adapt.stages import Inputs, Stage
from vocable.data import (
    read_corpus,
    read_examples,
    read_judgments,
    read_mined_negatives,
    read_queries,
    read_scores,
    read_texts,
)
from vocable.encoder import provenance as encoder_provenance
from vocable.encoder.asymmetric import route
from vocable.encoder.provenance import Step
from vocable.encoder.sparse_encoder import load_sparse_encoder, save_model
from vocable.training import distributed
from vocable.training.pretraining.pretrain import pretrain
from vocable.training.recipe import Recipe

QUERIES = 2000  # queries of each source of examples that a stage may read
START, ADAPTED, EXAMPLES = "start", "adapted", "examples"  # folders of a run: before pre-training, after it, and data
PRETRAIN = "pretrain"  # the stage, and its folder within the folder of the run


def provenance(model: SparseEncoder) -> list[Step]:
    """Return the steps that made `model`, in order; `str()` of a step is the table of its verb.

    Of a model with two encoders, the steps of the document encoder.
    """
    return encoder_provenance.provenance(model)  # here every stage has been imported, and describes its steps


def carry_out_stages(recipe: Recipe, work: Path) -> str:
    """Carry out the stages before the retrieval training, and return the name of the resulting model.

    Without any stage that is `recipe.model`, else a folder in `work`, the folder of the run. A finished folder is used
    again, and pre-training resumes from its checkpoints. All processes call this together.
    """
    planned = recipe.planned()
    if recipe.head == "own" and not planned:
        return recipe.model
    output, start = work / ADAPTED, work / START
    if distributed.from_first(output.exists()):
        return str(output)
    inputs = Inputs(recipe.seed, recipe.place, lambda: chain.from_iterable(_queries(recipe)))
    learning = next((number for number, (one, _) in enumerate(planned) if one.name == PRETRAIN), None)
    with distributed.first_alone():
        place = output if learning is None else start
        if distributed.is_first() and not place.exists():
            model = load_sparse_encoder(
                recipe.model, pooling=recipe.pooling, activation=recipe.activation, new_head=recipe.head == "new"
            )
            save_model(_adapted(model, planned[:learning], inputs), place)
    if learning is not None:  # by all processes together, every other stage by the first alone
        settings = planned[learning][1]
        keys = settings.model_dump(exclude={"texts"})
        texts = inputs.texts(settings.texts)
        model = pretrain(load_sparse_encoder(start), texts, work=work / PRETRAIN, seed=recipe.seed, **keys)
        with distributed.first_alone():
            if distributed.is_first():
                save_model(_adapted(model, planned[learning + 1 :], inputs), output)
    return str(output)


def _adapted(model: SparseEncoder, planned: Sequence[tuple[Stage, Any]], inputs: Inputs) -> SparseEncoder:
    for one, settings in planned:
        assert one.adapt is not None
        model = one.adapt(model, settings, inputs)
    return model


def check_sources(recipe: Recipe, work: Path) -> None:
    """Open every source that a run reads, without reading it: hours of other stages may precede its use.

    Nothing is opened once the run in the folder `work` has begun, since a source may be gone after it was read.

    Raises:
        DataError: a source does not exist.
    """
    if any((work / begun).exists() for begun in (START, ADAPTED, EXAMPLES)):
        return
    for place in [place for one, settings in recipe.planned() for place in one.texts(settings)]:
        read_texts(recipe.place(place))
    if recipe.evaluation is not None and recipe.evaluation.every is not None:
        for place in recipe.evaluation.datasets:
            read_judgments(recipe.place(place))
    for source in recipe.examples():
        if isinstance(source, str):
            read_examples(source)
            continue
        read_mined_negatives(source.file)
        read_corpus(source.corpus)
        read_queries(source.queries)
        if source.scores is not None:
            read_scores(source.scores)


def _queries(recipe: Recipe) -> Iterator[Iterator[str]]:
    """Yield some queries of each source of examples."""
    for source in recipe.examples():
        if isinstance(source, str):
            found = (example.query for example in read_examples(source))
        else:
            found = (query.text for query in read_queries(source.queries))
        yield islice(found, QUERIES)


def freeze_documents(model: SparseEncoder) -> None:
    """Freeze the document encoder."""
    for module in route(model, "document"):
        module.requires_grad_(False)


QUERY_PARAMETERS = r"sub_modules\.query\."  # sentence-transformers' names of the query encoder's weights


def queries_learn_apart(model: SparseEncoder) -> bool:
    """Return True if a training moves weights of the query encoder alone."""
    first = model[0]
    return isinstance(first, Router) and any(
        weight.requires_grad for module in route(model, "query") for weight in module.parameters()
    )
