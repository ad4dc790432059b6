"""Move a masked language model onto another vocabulary: the Vocabulary Transfer paper, §4.2.1 and §4.2.2.

Tokens that both vocabularies have keep their rows, new ones start where the chosen initialization puts them, and the
output bias takes the target's order on the source's scale. What comes out is an ordinary checkpoint with the target's
tokenizer, to be adapted by masked language modelling (§4.2.3) and calibrated.

Head-only transfer (§6.3, table 6) does the same with the output alone: the model reads what it read before, and its
terms are the target's tokens.

Letters: v source tokens, v' target tokens, n new tokens, d hidden size.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.adapt.alignment import Alignment, align
from vocable.adapt.initialization import Init, barycentres, initial_rows, subtoken_weights
from vocable.adapt.prior import log_counts, transferred_prior
from vocable.adapt.subtokens import cut
from vocable.adapt.surfaces import surfaces
from vocable.adapt.target import Target
from vocable.adapt.vocabulary import (
    Vocabulary,
    check_frame,
    vocabulary_of,
    warn_of_fixed_padding,
    with_output_vocabulary,
    with_vocabulary,
)
from vocable.encoder.output_vocabulary import OutputVocabulary
from vocable.encoder.terms import token_names
from vocable.errors import ArgumentError, ModelError, check_texts

logger = logging.getLogger(__name__)

Bias = Literal["prior", "keep"]

# Below it most rows are guesses; the English vocabularies of the paper have 56 to 61 % in common.
LOW_OVERLAP = 0.1


class Transfer(NamedTuple):
    """A transferred model with its tokenizer, and how its vocabulary was made."""

    mlm: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase  # what the model reads with
    target: PreTrainedTokenizerBase  # what its terms are the tokens of: `tokenizer`, unless only the head was moved
    alignment: Alignment
    weights: csr_array | None  # [n, v], what each new token was made of; None where the rows are not a weighted mean


def transfer(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    target: PreTrainedTokenizerBase,
    *,
    target_model: PreTrainedModel | None = None,
    head_only: bool = False,
    init: Init = "semantic",
    bias: Bias = "prior",
    texts: Iterable[str] | None = None,
    seed: int = 0,
) -> Transfer:
    """Give a masked language model the vocabulary of `target`.

    Embeddings and decoder stay one matrix where they were one; otherwise both are made in the same way.

    Args:
        mlm: the source model; it is left as it is.
        tokenizer: its tokenizer.
        target: the tokenizer to move to. The result has a copy with the source's maximum length and model inputs.
        target_model: a model with this tokenizer; its embeddings make the semantic initialization, its output bias the
            prior.
        head_only: replace the output terms alone. Tokenizer and input embeddings stay, and the rows of the decoder
            (tied or not) make those of an output layer of its own: see `vocable.encoder.output_vocabulary`.
        init: where a new token's row starts. "semantic": the mean of shared tokens that are near it in the target's
            embeddings (eq. 7 to 9). "subtoken": the mean of the pieces that the source's tokenizer cuts it into.
            "mean": the centroid of the shared tokens, which is also where the other two put what they cannot place.
            "random-new": a normal with the spread of the source's entries; "random-all" draws shared tokens, too.
        bias: "prior" takes the target's output bias to the mean and standard deviation of the source's (eq. 10), or the
            logarithms of the counts in `texts` where they are given; "keep" leaves shared tokens their own and gives
            new ones the mean.
        texts: a corpus to count the target's tokens in.
        seed: decides the random rows.

    Raises:
        ArgumentError: no such init or bias; a prior with nothing to take it from.
        ModelError: `mlm` has no masked-language-model head, or other output terms already; `target` lacks a special
            token that the model needs, or frames texts otherwise (which head-only does not mind); a semantic
            initialization without embeddings; no token in common.
    """
    check_texts(texts)
    _check_choice("init", init, get_args(Init))
    _check_choice("bias", bias, get_args(Bias))
    old, onto = vocabulary_of(mlm), Target(target, target_model)
    if not head_only:
        check_frame(tokenizer, target)
        warn_of_fixed_padding(mlm, target)
    alignment = align(tokenizer, target)
    _check_target(onto, alignment, init)
    if alignment.overlap < LOW_OVERLAP:
        message = "only %.1f %% of the target vocabulary is in the model's: most of it has to be learned anew"
        logger.warning(message, 100 * alignment.overlap)
    moved_bias = None if old.bias is None else _moved_bias(old.bias, bias, tokenizer, onto, alignment, texts)
    weights = _weights(init, len(old.embeddings), tokenizer, onto, alignment)
    generator = torch.Generator().manual_seed(seed)
    if head_only:
        rows = initial_rows(old.decoder, init, weights, alignment, generator)
        layer = OutputVocabulary(token_names(target, len(rows)), rows, moved_bias)
        return Transfer(with_output_vocabulary(mlm, layer), tokenizer, target, alignment, weights)
    embeddings = initial_rows(old.embeddings, init, weights, alignment, generator)
    tied = old.decoder.data_ptr() == old.embeddings.data_ptr()
    decoder = embeddings if tied else initial_rows(old.decoder, init, weights, alignment, generator)
    adopted = _adopted(tokenizer, target)
    moved = with_vocabulary(mlm, Vocabulary(embeddings, decoder, moved_bias), adopted)
    return Transfer(moved, adopted, adopted, alignment, weights)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ArgumentError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def _check_target(target: Target, alignment: Alignment, init: Init) -> None:
    if target.model is None and init == "semantic":
        raise ModelError("init='semantic' needs the target's embeddings, and it is a tokenizer alone: use 'subtoken'")
    if target.model is not None and target.model.get_input_embeddings().num_embeddings < len(alignment.source_of):
        raise ModelError("the target model has fewer embeddings than its tokenizer has tokens: they do not go together")
    if not len(alignment.anchors):
        raise ModelError("the two vocabularies have not a single token in common")


def _weights(
    init: Init, size: int, source: PreTrainedTokenizerBase, target: Target, alignment: Alignment
) -> csr_array | None:
    """The weights [n, v] of source tokens in each new one; None for the initializations that have none."""
    if init == "semantic":
        assert target.model is not None
        embeddings = target.model.get_input_embeddings().weight.detach()
        return barycentres(embeddings, alignment, alignment.new, size)
    if init == "subtoken":
        units = surfaces(target.tokenizer)
        return subtoken_weights(cut(source, [units[i] for i in alignment.new]), size)
    return None


def _moved_bias(
    old: Tensor,
    bias: Bias,
    source: PreTrainedTokenizerBase,
    target: Target,
    alignment: Alignment,
    texts: Iterable[str] | None,
) -> Tensor:
    """The new output bias [v'] in place of `old` [v]; rows that pad a head beyond its tokenizer do not count."""
    own, shared, tokens = _array(old)[_ids(source)], alignment.shared, _ids(target.tokenizer)
    moved = np.full(len(alignment.source_of), own.mean())
    if bias == "keep":
        moved[shared] = _array(old)[alignment.source_of[shared]]
    else:
        moved[tokens] = transferred_prior(own, _prior(target, texts)[tokens])
    return torch.from_numpy(moved).to(old)


def _prior(target: Target, texts: Iterable[str] | None) -> NDArray[np.float64]:
    """How frequent each of the target's tokens is, in logarithms: [v'] or, from a padded head, longer."""
    if texts is not None:
        return log_counts(target.tokenizer, texts)
    head = target.model.get_output_embeddings() if target.model is not None else None
    if head is None or head.bias is None:
        raise ArgumentError("bias='prior' needs a target model with an output bias, or texts to count; or use 'keep'")
    return _array(head.bias.detach())


def _adopted(source: PreTrainedTokenizerBase, target: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """A copy of the target's tokenizer for the source's model: its maximum length, the inputs that it takes."""
    adopted = copy.deepcopy(target)
    adopted.model_max_length = source.model_max_length
    adopted.model_input_names = list(source.model_input_names)
    adopted.init_kwargs["model_input_names"] = adopted.model_input_names  # they are saved from there only
    return adopted


def _ids(tokenizer: PreTrainedTokenizerBase) -> NDArray[np.int64]:
    return np.unique([*tokenizer.get_vocab().values()])


def _array(values: Tensor) -> NDArray[np.float64]:
    return values.double().cpu().numpy()
