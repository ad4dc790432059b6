"""The verbs that adapt, for tests that look into a model: a masked language model and its tokenizer go in and out."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder
from tokenizers import Tokenizer, models
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

import vocable as vo
from vocable.adapt.alignment import Alignment, align
from vocable.adapt.stages import PretrainSettings
from vocable.adapt.transfer import Move, Neighbours
from vocable.adapt.transfer import neighbours as made_of
from vocable.encoding.load import load
from vocable.encoding.pooling import pooling_of
from vocable.torch_models.fuse import parts
from vocable.torch_models.opening import Target
from vocable.torch_models.output_vocabulary import pass_on
from vocable.torch_models.sparse_encoder import save_model, sparse_encoder
from vocable.training.pretraining.mlm import Predictions
from vocable.training.pretraining.windows import WordCounts

ANY = None  # a tokenizer that nothing is read with


def stock(mlm: PreTrainedModel) -> PreTrainedModel:
    """The model with its own decoder, whose logits are logits again."""
    if mlm.get_output_embeddings() is not None:
        mlm.get_output_embeddings().__dict__.pop("forward", None)
        pass_on(mlm)
    return mlm


@contextmanager
def encoder_of(mlm: PreTrainedModel, tokenizer: Any = ANY, pooling: str = "max") -> Iterator[SparseEncoder]:
    """Within the context the model as a sparse encoder; behind it, it is as it was."""
    training = mlm.training
    try:
        encoder = sparse_encoder(mlm, tokenizer or any_tokenizer(mlm), device="cpu")
        encoder[1].pooling_strategy = pooling_of(pooling).name
        yield encoder
    finally:
        stock(mlm).train(training)


def any_tokenizer(mlm: PreTrainedModel) -> PreTrainedTokenizerFast:
    """A tokenizer with a token for each row of the output layer, none of them special."""
    layer = mlm.get_output_embeddings()
    size = mlm.config.vocab_size if layer is None else len(layer.weight)
    words = models.WordLevel({f"word{number}": number for number in range(size)}, "word0")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words))


def load_checkpoint(name: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    mlm, tokenizer, *_ = parts(load(name, device="cpu"))
    return stock(mlm), tokenizer


def save_checkpoint(mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, output: Path) -> None:
    with encoder_of(mlm, tokenizer) as model:
        save_model(model, output)


def rescale(mlm: PreTrainedModel, factor: Any, *, tokenizer: Any = ANY, texts: Any = None) -> PreTrainedModel:
    with encoder_of(mlm, tokenizer) as model:
        return stock(parts(vo.rescale(model, factor, texts=texts)).mlm)


class ActiveShare(NamedTuple):
    """Share of active terms of the probe's texts, as a calibration records it."""

    share: float
    mean: float
    p99: float


class Calibrated(NamedTuple):
    mlm: PreTrainedModel
    shift: float
    before: ActiveShare
    after: ActiveShare


def calibrate(
    mlm: PreTrainedModel, tokenizer: Any, texts: Sequence[str], *, pooling: str = "max", **options: Any
) -> Calibrated:
    with encoder_of(mlm, tokenizer, pooling) as model:
        made = vo.calibrate(model, texts, **options)
    step = vo.provenance(made)[-1]
    shares = (ActiveShare(**step[when]) for when in ("before", "after"))
    return Calibrated(stock(parts(made).mlm), step["shift"], *shares)


class Moved(NamedTuple):
    mlm: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    target: PreTrainedTokenizerBase
    alignment: Alignment
    weights: csr_array | None
    source: PreTrainedModel
    onto: Any
    init: Any


def transfer(
    mlm: PreTrainedModel, tokenizer: Any, target: Any, *, target_model: PreTrainedModel | None = None, **options: Any
) -> Moved:
    init = options.get("init", "semantic")
    with encoder_of(mlm, tokenizer) as model:
        onto = target if target_model is None else sparse_encoder(target_model, target, device="cpu")
        try:
            made = parts(vo.transfer(model, onto, **options))
        finally:
            if target_model is not None:
                stock(target_model)
    alignment = align(tokenizer, target)
    move = Move(tokenizer, Target(target, target_model), alignment)
    weights = move.weights(init, mlm.config.vocab_size, alignment.new)
    terms = target if options.get("head_only") else made.tokenizer
    return Moved(stock(made.mlm), made.tokenizer, terms, alignment, weights, mlm, onto, init)


def neighbours(moved: Moved, tokenizer: Any, word: str, k: int = 5) -> Neighbours:
    with encoder_of(moved.source, tokenizer) as model:
        return made_of(model, moved.onto, [word], init=moved.init, k=k)[0]


def expand(mlm: PreTrainedModel, tokenizer: Any, words: Any, *, target: Any = None, **options: Any) -> PreTrainedModel:
    onto: Any = target
    if isinstance(target, Target):
        onto = target.tokenizer if target.model is None else sparse_encoder(target.model, target.tokenizer)
    with encoder_of(mlm, tokenizer) as model:
        return stock(parts(vo.expand_vocabulary(model, words, target=onto, **options)).mlm)


class Pretrained(NamedTuple):
    mlm: PreTrainedModel
    before: dict[str, Predictions]
    after: dict[str, Predictions]
    words: WordCounts | None


def pretrain(
    mlm: PreTrainedModel,
    tokenizer: Any,
    texts: Iterable[str],
    settings: PretrainSettings,
    folder: Path,
    *,
    new_tokens: Any = None,
    seed: int = 0,
) -> Pretrained:
    if new_tokens is not None:
        flags = np.packbits(np.bincount(np.asarray(new_tokens)) > 0)
        mlm.config.vocable = {"new_tokens": base64.b64encode(flags.tobytes()).decode()}
    with encoder_of(mlm, tokenizer) as model:
        keys = settings.model_dump(exclude={"texts"})
        made = vo.pretrain(model, texts, work=folder, seed=seed, **keys)
    step = vo.provenance(made)[-1]
    before, after = (
        {group: Predictions(**guess) for group, guess in step["held_out"][when].items()} for when in ("before", "after")
    )
    words = WordCounts(**step["words"]) if "words" in step else None
    return Pretrained(stock(parts(made).mlm), before, after, words)
