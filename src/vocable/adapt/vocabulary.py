"""Put another vocabulary into a masked language model: its matrices, its special ids, its count of positions.

Letters: v' tokens of the new vocabulary, d the size of the embeddings, p positions.
"""

from __future__ import annotations

import copy
import logging
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from vocable.adapt.alignment import ROLES, role_id
from vocable.encoder.fuse import plain_decoder
from vocable.encoder.output_vocabulary import OutputVocabulary, give_output_vocabulary, output_vocabulary
from vocable.errors import ModelError

logger = logging.getLogger(__name__)

FRAME = ("cls", "sep", "pad", "mask")  # roles that a masked language model's inputs cannot do without
# Whatever its configuration says, MPNet takes token 1 for padding, in the host library's code.
FIXED_PADDING = {"mpnet": 1}


class Vocabulary(NamedTuple):
    """What a model holds of its vocabulary; tied matrices are one tensor."""

    embeddings: Tensor  # [v', d]
    decoder: Tensor  # [v', d]
    bias: Tensor | None  # [v']


def vocabulary_of(mlm: PreTrainedModel) -> Vocabulary:
    """The matrices of a masked language model, as they are, not copied.

    Raises:
        ModelError: it has no masked-language-model head, none that is a plain `Linear`, or other output terms already.
    """
    decoder = plain_decoder(mlm)
    if output_vocabulary(mlm) is not None:
        raise ModelError("the model has an output vocabulary of its own: take the one that it was made from")
    bias = None if decoder.bias is None else decoder.bias.detach()
    return Vocabulary(mlm.get_input_embeddings().weight.detach(), decoder.weight.detach(), bias)


def with_vocabulary(
    mlm: PreTrainedModel, vocabulary: Vocabulary, tokenizer: PreTrainedTokenizerBase
) -> PreTrainedModel:
    """A copy of `mlm` with another vocabulary, made as the host library makes a model that it loads.

    Everything outside the vocabulary stays as it is. Models that count positions from their padding token on (RoBERTa
    and its kin) get their position embeddings moved with it: the first token still meets the row that it met before.
    """
    config = _config(mlm.config, tokenizer, len(vocabulary.embeddings))
    replaced = {
        old.data_ptr(): new
        for old, new in zip(vocabulary_of(mlm), vocabulary, strict=True)
        if old is not None and new is not None
    }
    positions = _positions_from_padding(mlm)
    if positions is not None:
        moved = _moved_positions(positions, mlm.config.pad_token_id, config.pad_token_id)
        replaced[positions.data_ptr()] = moved
        config.max_position_embeddings = len(moved)
    copies: dict[int, Tensor] = {}  # tied tensors stay one
    state = {}
    for name, tensor in mlm.state_dict().items():
        new = replaced.get(tensor.data_ptr(), tensor)
        if new is tensor and tensor.shape == (mlm.config.vocab_size,) and vocabulary.bias is not None:
            new = vocabulary.bias  # an untied BERT keeps a second bias, which it does not use
        state[name] = copies.setdefault(new.data_ptr(), new.to(tensor.dtype, copy=True).contiguous())
    made: PreTrainedModel = type(mlm).from_pretrained(None, config=config, state_dict=state, dtype=mlm.dtype)
    return made.to(mlm.device).eval()


def with_output_vocabulary(mlm: PreTrainedModel, layer: OutputVocabulary) -> PreTrainedModel:
    """A copy of `mlm` whose output terms are those of `layer`; it reads what it read before."""
    made = copy.deepcopy(mlm).eval()
    give_output_vocabulary(made, layer)
    return made


def check_frame(source: PreTrainedTokenizerBase, target: PreTrainedTokenizerBase) -> None:
    """Make sure that the target's tokenizer frames a text as the source's does.

    Raises:
        ModelError: it lacks a special token, or its template puts others around a text.
    """
    lacking = [role for role in FRAME if role_id(source, role) is not None and role_id(target, role) is None]
    if lacking:
        raise ModelError(f"the target tokenizer has no {', '.join(lacking)} token, which the model needs: add it first")
    frames = [_frame(tokenizer) for tokenizer in (source, target)]
    if frames[0] != frames[1]:
        had, found = (" ".join(name or "other" for name in frame) for frame in frames)
        raise ModelError(f"the target tokenizer frames a text as {found}, the model's as {had}: give it that template")


def warn_of_fixed_padding(mlm: PreTrainedModel, target: PreTrainedTokenizerBase) -> None:
    """Say when the host library's code fixes a padding id that is another token of the target."""
    fixed = FIXED_PADDING.get(mlm.config.model_type)
    if fixed is not None and target.pad_token_id != fixed:
        message = (
            "%s takes token %d, now %r, for padding whatever its configuration says: texts with it lose their order"
        )
        logger.warning(message, type(mlm).__name__, fixed, target.convert_ids_to_tokens(fixed))


def _frame(tokenizer: PreTrainedTokenizerBase) -> list[str | None]:
    """The roles of what the template puts around the text "a"; "text" for the tokens of the text."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    framed = tokenizer("a")["input_ids"]
    roles = {role_id(tokenizer, role): role for role in ROLES}
    start = next((i for i in range(len(framed)) if framed[i : i + len(bare)] == bare), 0)
    return [*map(roles.get, framed[:start]), "text", *map(roles.get, framed[start + len(bare) :])]


def _config(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, size: int) -> PreTrainedConfig:
    """The configuration with the new vocabulary's size, and its ids for every role that had one."""
    config = copy.deepcopy(config)
    config.vocab_size = size
    ids = {role: role_id(tokenizer, role) for role in ROLES}
    for name, found in {**ids, "bos": ids["cls"], "eos": ids["sep"]}.items():
        if getattr(config, f"{name}_token_id", None) is not None:
            setattr(config, f"{name}_token_id", found)
    return config


def _positions_from_padding(mlm: PreTrainedModel) -> Tensor | None:
    """The position embeddings [p, d] of a model that counts from its padding id on: they have a padding row."""
    if mlm.config.model_type in FIXED_PADDING:
        return None
    for module in mlm.modules():
        positions = getattr(module, "position_embeddings", None)
        if isinstance(positions, nn.Embedding) and positions.padding_idx is not None:
            return positions.weight.detach()
    return None


def _moved_positions(rows: Tensor, old: int, new: int) -> Tensor:
    """Position embeddings [p, d] whose padding row `old` stands at `new`, followed by what followed it.

    >>> _moved_positions(torch.tensor([[9.0], [0.0], [1.0], [2.0]]), 1, 0).flatten()
    tensor([0., 1., 2.])
    >>> _moved_positions(torch.tensor([[0.0], [1.0], [2.0]]), 0, 1).flatten()
    tensor([0., 0., 1., 2.])
    """
    return torch.cat([rows.new_zeros(new, rows.shape[1]), rows[old:]])
