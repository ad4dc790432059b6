"""Carry out the stages of a recipe, from its backbone to the model that the retrieval training starts from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from sentence_transformers import SparseEncoder

from vocable import data
from vocable.adapt.stages import Inputs, Stage
from vocable.core.arrays import holds_arrays
from vocable.core.steps import made_once
from vocable.encoding.hub import check_model
from vocable.torch_models.provenance import provenance as provenance  # public here: every stage describes its steps
from vocable.torch_models.sparse_encoder import load_sparse_encoder, save_model
from vocable.training import distributed
from vocable.training.prepared import PreparedExamples
from vocable.training.pretraining.pretrain import pretrain
from vocable.training.recipe import Recipe

QUERIES = 2000  # queries of each source of examples that a stage may read
# Folders of a run: the model before pre-training, the model after all stages, and the data.
START, ADAPTED, EXAMPLES = "start", "adapted", "examples"
PRETRAIN = "pretrain"  # the stage, and its folder within the folder of the run


def carry_out_stages(recipe: Recipe, work: Path) -> str:
    """Carry out the stages before the retrieval training, and return the name of the resulting model.

    Without any stage or mean the name is `recipe.model`. Otherwise it is a folder in `work`, the folder of the run. A
    finished folder is used again, and pre-training resumes from its checkpoints. All processes call this together.
    """
    planned = recipe.planned()
    if recipe.head == "own" and not planned:
        return recipe.model
    output, start = work / ADAPTED, work / START
    if distributed.from_first(output.exists()):
        return str(output)
    inputs = Inputs(recipe.seed, recipe.place, lambda: chain.from_iterable(_queries(recipe)))
    names = [stage.name for stage, _ in planned]
    middle = names.index(PRETRAIN) if PRETRAIN in names else len(names)

    def adapt(model: SparseEncoder, steps: Sequence[tuple[Stage, Any]], folder: Path) -> None:
        for stage, settings in steps:
            model = stage.adapt(model, settings, inputs)
        save_model(model, folder)

    def adapt_backbone(folder: Path) -> None:
        options: dict[str, Any] = {"pooling": recipe.pooling, "activation": recipe.activation}
        options |= {"special_terms": recipe.special_terms, "new_head": recipe.head == "new"}
        adapt(load_sparse_encoder(recipe.model, **options), planned[:middle], folder)

    # All processes pre-train together; only the first process carries out the other stages.
    backbone = output if middle == len(planned) else start
    distributed.by_first(partial(made_once, backbone, partial(adapt_backbone, backbone)))
    if middle < len(planned):
        settings = planned[middle][1]
        keys = settings.model_dump(exclude={"texts"})
        read = data.read_examples if settings.labels else data.read_texts
        texts: Iterable[Any] = chain.from_iterable([read(recipe.place(source)) for source in settings.texts])
        model = pretrain(load_sparse_encoder(start), texts, work=work / PRETRAIN, seed=recipe.seed, **keys)
        distributed.by_first(lambda: adapt(model, planned[middle + 1 :], output))
    return str(output)


def check_sources(recipe: Recipe, work: Path) -> None:
    """Open every source of a run, without reading it, and look for its models, which may be needed only hours later.

    Nothing is opened once the run in the folder `work` has begun, since a source may be gone after it was read.
    """
    if any((work / begun).exists() for begun in (START, ADAPTED, EXAMPLES)):
        return
    # Models, then texts, test sets, corpora and examples.
    for name in recipe.other_models():
        check_model(name)
    for place in [place for stage, settings in recipe.planned() for place in stage.texts(settings)]:
        data.read_texts(recipe.place(place))
    if recipe.evaluation is not None and recipe.evaluation.every is not None:
        for place in recipe.evaluation.datasets:
            data.read_judgments(recipe.place(place))
    if recipe.training.mine is not None and recipe.training.mine.corpus is not None:
        data.read_corpus(recipe.place(recipe.training.mine.corpus))
    for source in recipe.examples():
        if isinstance(source, str):
            if not holds_arrays(source):
                data.read_examples(source)
            continue
        data.read_mined_negatives(source.file)
        data.read_corpus(source.corpus)
        data.read_queries(source.queries)
        if source.scores is not None:
            data.read_scores(source.scores)


def _queries(recipe: Recipe) -> Iterator[Iterator[str]]:
    for source in recipe.examples():
        if isinstance(source, str) and holds_arrays(source):
            yield islice(PreparedExamples(Path(source)).queries(), QUERIES)
        elif isinstance(source, str):
            yield islice((example.query for example in data.read_examples(source)), QUERIES)
        else:
            yield islice((query.text for query in data.read_queries(source.queries)), QUERIES)
