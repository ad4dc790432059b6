"""Stages: what a recipe does before the retrieval training, from its backbone to the model that it starts from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path

from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router

from vocable.adapt.calibrate import calibrate
from vocable.adapt.expand_vocabulary import expand_vocabulary
from vocable.adapt.rescale import rescale
from vocable.adapt.train_vocabulary import lowercased
from vocable.adapt.transfer import transfer
from vocable.data import (
    read_corpus,
    read_examples,
    read_judgments,
    read_mined_negatives,
    read_queries,
    read_scores,
    read_texts,
)
from vocable.encoder.asymmetric import asymmetric, route
from vocable.encoder.fuse import copy_with, parts
from vocable.encoder.inference_free import make_inference_free
from vocable.encoder.load import load, save_model
from vocable.encoder.provenance import record
from vocable.training import distributed
from vocable.training.pretraining.pretrain import pretrain
from vocable.training.recipe import Recipe
from vocable.training.settings import HardNegatives, QuerySettings, Source, located

PROBE_TEXTS = 1000  # read at most for rescale, which uses the first that serve it
QUERIES = 2000  # of a source of examples, whose tokens' mean weights are looked up
START, ADAPTED, EXAMPLES = "start", "adapted", "examples"  # folders of a run: before pre-training, after it, and data
PRETRAIN = "pretrain"  # the folder of pre-training within that of the run


def carry_out_stages(recipe: Recipe, work: Path) -> str:
    """Carry out the stages before the retrieval training, and return the name of the result.

    It is `recipe.model` itself where the recipe has no such stage, else a folder in `work`, the run's folder, where
    pre-training goes on from its checkpoints, and what is finished is used as it is. Of several processes all call it.
    """
    name = recipe.model
    stages = (recipe.lowercase, recipe.transfer, recipe.expand, recipe.rescale, recipe.pretrain, recipe.calibrate)
    if recipe.head == "new" or any(stages):
        name = str(work / ADAPTED)
        if not distributed.from_first(Path(name).exists()):
            _adapt(recipe, work, name)
    if recipe.queries is not None:
        documents, name = name, str(work / "with-queries")
        with distributed.first_alone():
            if distributed.is_first() and not Path(name).exists():
                save_model(_with_queries(recipe.queries, load(documents), recipe), name)
    return name


def check_sources(recipe: Recipe, work: Path) -> None:
    """Open all sources that a run reads, and nothing more: hours of a stage may lie before their turn.

    In the folder `work` of a run that has begun nothing is looked at: what it has read may be gone.

    Raises:
        DataError: a source that is not there.
    """
    if any((work / begun).exists() for begun in (START, ADAPTED, EXAMPLES)):
        return
    parts = (recipe.transfer, recipe.expand, recipe.pretrain)
    texts = [place for part in parts if part is not None for place in part.texts]
    texts += [part.texts for part in (recipe.rescale, recipe.calibrate) if part is not None and part.texts is not None]
    texts += [part.corpus for part in (recipe.queries,) if part is not None and part.corpus is not None]
    for place in texts:
        read_texts(recipe.place(place))
    if recipe.evaluation is not None and recipe.evaluation.every is not None:
        for place in recipe.evaluation.datasets:
            read_judgments(recipe.place(place))
    for source in (located(source, recipe.place) for source in recipe.data.examples):
        if isinstance(source, str):
            read_examples(source)
            continue
        read_mined_negatives(source.file)
        read_corpus(source.corpus)
        read_queries(source.queries)
        if source.scores is not None:
            read_scores(source.scores)


def _adapt(recipe: Recipe, work: Path, name: str) -> None:
    """Leave the adapted model in the folder `name`: all processes pre-train together, the rest the first does alone."""
    learning, start = recipe.pretrain, str(work / START)
    with distributed.first_alone():
        if distributed.is_first() and learning is None:
            save_model(_calibrated(_before_pretraining(recipe), recipe), name)
        elif distributed.is_first() and not Path(start).exists():
            save_model(_before_pretraining(recipe), start)
    if learning is not None:
        keys = learning.model_dump(exclude={"texts"})
        texts = _texts(recipe, learning.texts)
        model = pretrain(load(start), texts, work=work / PRETRAIN, seed=recipe.seed, **keys)
        with distributed.first_alone():
            if distributed.is_first():
                save_model(_calibrated(model, recipe), name)


def _calibrated(model: SparseEncoder, recipe: Recipe) -> SparseEncoder:
    if (shifting := recipe.calibrate) is None:
        return model
    some = (text for text in _texts(recipe, [shifting.texts]) if text.strip())
    return calibrate(model, list(islice(some, shifting.count)), **shifting.model_dump(exclude={"texts"}))


def _before_pretraining(recipe: Recipe) -> SparseEncoder:
    model = load(recipe.model, pooling=recipe.pooling, activation=recipe.activation, new_head=recipe.head == "new")
    if recipe.lowercase:
        model = copy_with(model, tokenizer=lowercased(parts(model).tokenizer))
        record(model, "lowercase")
    if (moving := recipe.transfer) is not None:
        keys = moving.model_dump(exclude={"texts"})
        model = transfer(model, **keys, texts=_texts(recipe, moving.texts) if moving.texts else None, seed=recipe.seed)
    if (words := recipe.expand) is not None:
        keys = words.model_dump(exclude={"texts", "words"})
        if words.words is not None:
            model = expand_vocabulary(model, Path(recipe.place(words.words)), **keys, seed=recipe.seed)
        else:
            model = expand_vocabulary(model, texts=_texts(recipe, words.texts), **keys, seed=recipe.seed)
    if (scale := recipe.rescale) is not None:
        model = rescale(model, scale.factor, texts=_probe(recipe, scale.texts))
    return model


def _probe(recipe: Recipe, place: str | None) -> list[str]:
    return [] if place is None else list(islice(_texts(recipe, [place]), PROBE_TEXTS))


def _texts(recipe: Recipe, places: Sequence[str]) -> Iterator[str]:
    return chain.from_iterable(read_texts(recipe.place(place)) for place in places)


def _with_queries(settings: QuerySettings, documents: SparseEncoder, recipe: Recipe) -> SparseEncoder:
    if settings.model is not None:
        return asymmetric(load(settings.model), documents)
    texts = None if settings.corpus is None else read_texts(recipe.place(settings.corpus))
    if settings.weights == "mean":
        texts = chain.from_iterable(map(partial(_queries, recipe), recipe.data.examples))
    return make_inference_free(documents, texts, weights=settings.weights or "idf", trainable=settings.trainable)


def _queries(recipe: Recipe, source: Source) -> Iterator[str]:
    """Some queries of a source of examples."""
    if isinstance(source, HardNegatives):
        found = (query.text for query in read_queries(recipe.place(source.queries)))
    else:
        found = (example.query for example in read_examples(recipe.place(source)))
    return islice(found, QUERIES)


def freeze_documents(model: SparseEncoder) -> None:
    """Let nothing learn of what encodes documents."""
    for module in route(model, "document"):
        module.requires_grad_(False)


PARAMETERS = r"sub_modules\.query\."  # the host library's names of what encodes queries


def queries_learn_apart(model: SparseEncoder) -> bool:
    """Whether a training moves weights that encode queries alone."""
    first = model[0]
    return isinstance(first, Router) and any(
        weight.requires_grad for module in route(model, "query") for weight in module.parameters()
    )
