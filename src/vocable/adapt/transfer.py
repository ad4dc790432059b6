"""Transfer a model to another vocabulary (Geng and Yang 2026, §4.2.1 and §4.2.2).

Shared tokens keep their rows, new tokens get initialized rows, and the output bias takes the target's order on the
source's scale. The result has the target's tokenizer. It is then adapted by masked language modelling (§4.2.3) and
calibrated. Head-only transfer (§6.3, table 6) replaces only the output: the tokenizer stays, and the terms are the
target's tokens.

Letters: v source tokens, v' target tokens, n new tokens, d size of the embeddings, p positions.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.adapt.alignment import ROLES, Alignment, align, cut, role_id
from vocable.adapt.initialization import (
    barycentres,
    initial_rows,
    log_counts,
    subtoken_weights,
    transferred_prior,
)
from vocable.adapt.stages import Bias, Inputs, Norm, TokenInit, TransferSettings
from vocable.adapt.statistics import row_norms
from vocable.core.tables import Table
from vocable.data.texts import as_texts, iter_texts
from vocable.encoding.tokens import token_surfaces
from vocable.encoding.vectors import token_names
from vocable.errors import ArgumentError, ModelError
from vocable.options import CountOrZero, checked
from vocable.torch_models.fuse import copy_with, parts, plain_decoder
from vocable.torch_models.opening import Target, load_target
from vocable.torch_models.output_vocabulary import (
    OutputVocabulary,
    give_output_vocabulary,
    has_bias,
    output_vocabulary,
    special_tokens,
)
from vocable.torch_models.provenance import Step, describes, record

logger = logging.getLogger(__name__)

TargetName: TypeAlias = str | Path | SparseEncoder | PreTrainedTokenizerBase

OWN_TERMS = "its terms are not its tokens: vocable.load reads it, stock loaders give the model that it was made from"
# With less overlap most rows are guesses; the English vocabularies of the paper share 56 to 61 %.
LOW_OVERLAP = 0.1
FRAME = ("cls", "sep", "pad", "mask")  # roles that the inputs of a masked language model need
# transformers' MPNet takes token 1 for padding, whatever its configuration says.
FIXED_PADDING = {"mpnet": 1}


class VocabularyWeights(NamedTuple):
    """The weights of a model that belong to its vocabulary; tied matrices are the same tensor."""

    embeddings: Tensor  # [v', d]
    decoder: Tensor  # [v', d]
    bias: Tensor | None  # [v']


def vocabulary_of(mlm: PreTrainedModel) -> VocabularyWeights:
    """Return the weights of a model's vocabulary, not copied; raises `ModelError` if it has an output vocabulary."""
    decoder = plain_decoder(mlm)
    if output_vocabulary(mlm) is not None:
        raise ModelError("the model has its own output vocabulary already: use the model that it was made from")
    bias = decoder.bias.detach() if has_bias(decoder) else None
    return VocabularyWeights(mlm.get_input_embeddings().weight.detach(), decoder.weight.detach(), bias)


def _with_vocabulary(
    mlm: PreTrainedModel, vocabulary: VocabularyWeights, tokenizer: PreTrainedTokenizerBase
) -> PreTrainedModel:
    """Copy `mlm` with another vocabulary, through transformers' loading of a state dict."""
    # Settings of the new vocabulary: its size and its special tokens.
    config = copy.deepcopy(mlm.config)
    config.vocab_size = len(vocabulary.embeddings)
    ids = {role: role_id(tokenizer, role) for role in ROLES}
    for name, token_id in {**ids, "bos": ids["cls"], "eos": ids["sep"]}.items():
        if getattr(config, f"{name}_token_id", None) is not None:
            setattr(config, f"{name}_token_id", token_id)
    # New tensors by the addresses of the old tensors, because the state dict has a tied tensor under several names.
    pairs = zip(vocabulary_of(mlm), vocabulary, strict=True)
    replaced = {old.data_ptr(): new for old, new in pairs if old is not None and new is not None}
    positions = _positions_from_padding(mlm)
    if positions is not None:  # the row of the padding token and all rows after it move to the new token's id
        start = positions.new_zeros(config.pad_token_id, positions.shape[1])
        shifted = torch.cat([start, positions[mlm.config.pad_token_id :]])
        replaced[positions.data_ptr()] = shifted
        config.max_position_embeddings = len(shifted)
    # A copy of every tensor, by its address: one copy of a tied tensor, so that it stays tied.
    copies: dict[int, Tensor] = {}
    state = {}
    for name, tensor in mlm.state_dict().items():
        new = replaced.get(tensor.data_ptr(), tensor)
        if new is tensor and tensor.shape == (mlm.config.vocab_size,) and vocabulary.bias is not None:
            new = vocabulary.bias  # an untied BERT keeps a second bias, which it does not use
        state[name] = copies.setdefault(new.data_ptr(), new.to(tensor.dtype, copy=True).contiguous())
    copied: PreTrainedModel = type(mlm).from_pretrained(None, config=config, state_dict=state, dtype=mlm.dtype)
    return copied.to(mlm.device).eval()


def with_output_vocabulary(mlm: PreTrainedModel, layer: OutputVocabulary) -> PreTrainedModel:
    """Copy `mlm` with the output terms of `layer`; its input stays."""
    copied = copy.deepcopy(mlm).eval()
    give_output_vocabulary(copied, layer)
    return copied


def _check_frame(source: PreTrainedTokenizerBase, target: PreTrainedTokenizerBase) -> None:
    """Raise `ModelError` unless both tokenizers put the same special tokens around a text."""
    lacking = [role for role in FRAME if role_id(source, role) is not None and role_id(target, role) is None]
    if lacking:
        raise ModelError(f"the target tokenizer has no {', '.join(lacking)} token, which the model needs: add it first")
    frames = [_frame(tokenizer) for tokenizer in (source, target)]
    if frames[0] != frames[1]:
        model, other = (" ".join(name or "other" for name in frame) for frame in frames)
        message = f"the target tokenizer encodes a text as {other}, the model's as {model}: set the same template"
        raise ModelError(message)


def _frame(tokenizer: PreTrainedTokenizerBase) -> list[str | None]:
    """Return the roles of the tokens in the encoding of the text "a"; the text's own tokens have the role "text"."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    framed = tokenizer("a")["input_ids"]
    roles = {role_id(tokenizer, role): role for role in ROLES}
    start = next((i for i in range(len(framed)) if framed[i : i + len(bare)] == bare), 0)
    return [*map(roles.get, framed[:start]), "text", *map(roles.get, framed[start + len(bare) :])]


def _positions_from_padding(mlm: PreTrainedModel) -> Tensor | None:
    """Return the position embeddings [p, d] of a model that counts positions from its padding id, as RoBERTa does."""
    if mlm.config.model_type in FIXED_PADDING:
        return None
    for module in mlm.modules():
        positions = getattr(module, "position_embeddings", None)
        if isinstance(positions, nn.Embedding) and positions.padding_idx is not None:
            return positions.weight.detach()
    return None


@checked
def transfer(
    model: SparseEncoder,
    target: TargetName,
    *,
    head_only: bool = False,
    init: TokenInit = "semantic",
    bias: Bias = "prior",
    norm: Norm = "keep",
    texts: Iterable[str] | None = None,
    seed: CountOrZero = 0,
) -> SparseEncoder:
    """Give a model the vocabulary of another.

    Shared tokens keep their embeddings; new tokens start near their meaning. Tied embeddings and decoder stay tied.

    Args:
        model: from `vocable.load`; it is not changed.
        target: model or tokenizer with the new vocabulary: a folder or a Hub id; in Python also loaded. The result has
            a copy of the tokenizer, with the source's maximum length and model inputs.
        head_only: replace the output terms only; the new rows make a separate output layer.
        init: rows of new tokens. semantic: the mean of shared tokens that are near in the target's embeddings (eq. 7 to
            9). subtoken: the mean of the token's pieces, as the source's tokenizer cuts it. mean: the centroid of the
            shared tokens, which the first two use for tokens that they cannot place. random-new: a normal distribution
            with the standard deviation of the source's entries. random-all draws shared tokens, too.
        bias: output bias. prior: the target's bias, or with `texts` the log counts of the tokens, moved to the mean and
            standard deviation of the source's bias (eq. 10). keep: the source's bias for shared tokens, and its mean
            for new tokens.
        norm: norm of the output rows. keep: the model's. target: output matrix and bias are divided, so that shared
            tokens have their mean norm in the target's output matrix (in the code of the paper's authors, not in the
            paper).
        texts: a corpus whose tokens are counted for the prior.
        seed: seed of the random rows.

    Returns:
        a new model that knows its new tokens (`vocable.new_tokens`). Its provenance has the share of the target's
        vocabulary that was carried over, in total (overlap) and by class of token.

    Raises:
        ArgumentError: a prior or norm that needs weights, and the target has none.
        ModelError: `model` has its own output terms already; `target` does not exist, lacks a special token that the
            model needs, or has another template (allowed with head_only); a semantic initialization without
            embeddings; no token in common.
    """
    texts = None if texts is None else iter_texts(texts)
    source, loaded = parts(model), load_target(target)
    old = vocabulary_of(source.mlm)
    # The model must be able to read with the new tokenizer.
    if not head_only:
        _check_frame(source.tokenizer, loaded.tokenizer)
        fixed = FIXED_PADDING.get(source.mlm.config.model_type)
        if fixed is not None and loaded.tokenizer.pad_token_id != fixed:
            message = "%s always takes token %d, now %r, for padding: in texts with it, later positions are wrong"
            logger.warning(message, type(source.mlm).__name__, fixed, loaded.tokenizer.convert_ids_to_tokens(fixed))
    # Tokens that both vocabularies have, and what the initialization needs.
    alignment = align(source.tokenizer, loaded.tokenizer)
    move = Move(source.tokenizer, loaded, alignment)
    move.check(init)
    if alignment.overlap < LOW_OVERLAP:
        message = "only %.1f %% of the target vocabulary is shared: most of it has to be learned anew"
        logger.warning(message, 100 * alignment.overlap)
    # The new output bias [v'], and weights of source tokens for the new tokens' rows [n, v].
    new_bias = None if old.bias is None else move.output_bias(old.bias, bias, texts)
    weights = move.weights(init, len(old.embeddings), alignment.new)
    generator = torch.Generator().manual_seed(seed)
    factor = 1.0 if norm == "keep" else move.norm_factor(old.decoder)
    if new_bias is not None:
        new_bias = new_bias / factor
    # Replace the output layer alone, or embeddings, decoder and tokenizer.
    if head_only:
        rows = initial_rows(old.decoder, init, weights, alignment, generator) / factor
        layer = OutputVocabulary(token_names(loaded.tokenizer, len(rows)), rows, new_bias)
        result = copy_with(model, with_output_vocabulary(source.mlm, layer))
    else:
        embeddings = initial_rows(old.embeddings, init, weights, alignment, generator)
        if old.decoder.data_ptr() == old.embeddings.data_ptr():  # tied
            decoder = embeddings = embeddings / factor
        else:
            decoder = initial_rows(old.decoder, init, weights, alignment, generator) / factor
        tokenizer = copy.deepcopy(loaded.tokenizer)
        tokenizer.model_max_length = source.tokenizer.model_max_length
        tokenizer.model_input_names = list(source.tokenizer.model_input_names)
        tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names  # saved from there only
        mlm = _with_vocabulary(source.mlm, VocabularyWeights(embeddings, decoder, new_bias), tokenizer)
        result = copy_with(model, mlm, tokenizer)
    # The provenance keeps the new tokens for `new_tokens`.
    classes = {kind: count._asdict() for kind, count in alignment.classes.items()}
    figures = {"overlap": alignment.overlap, "classes": classes, "new_tokens": len(alignment.new)}
    if norm == "target":
        figures |= {"norm": norm, "factor": factor}
    name = str(target) if isinstance(target, str | Path) else loaded.tokenizer.name_or_path
    record(result, "transfer", new=alignment.new, target=name, head_only=head_only, init=init, bias=bias, **figures)
    return result


class Move(NamedTuple):
    """A move from the vocabulary of a `source` tokenizer to a target's."""

    source: PreTrainedTokenizerBase
    target: Target
    alignment: Alignment

    def check(self, init: TokenInit) -> None:
        """Raise `ModelError` if the target lacks the embeddings of an initialization, or shares no token."""
        model = self.target.model
        if model is None and init == "semantic":
            raise ModelError(
                "init='semantic' needs the target's embeddings, and the target is only a tokenizer: use 'subtoken'"
            )
        if model is not None and model.get_input_embeddings().num_embeddings < len(self.alignment.source_of):
            raise ModelError("the target model has fewer embeddings than its tokenizer has tokens")
        if not len(self.alignment.anchors):
            raise ModelError("the two vocabularies have no token in common")

    def weights(self, init: TokenInit, size: int, new: NDArray[np.int64]) -> csr_array | None:
        """Return the weights [n, v] of v = `size` source tokens in each `new` one; None if `init` needs no weights."""
        if init == "semantic":
            assert self.target.model is not None
            embeddings = self.target.model.get_input_embeddings().weight.detach()
            return barycentres(embeddings, self.alignment, new, size)
        if init == "subtoken":
            units = token_surfaces(self.target.tokenizer)
            return subtoken_weights(cut(self.source, [units[i] for i in new]), size)
        return None

    def output_bias(self, old: Tensor, bias: Bias, texts: Iterable[str] | None) -> Tensor:
        """Return the output bias [v'] that replaces `old` [v], computed without special tokens and unused ids."""
        # All biases of the source [v], biases of its ordinary tokens, and ordinary tokens of the target.
        values, shared = old.double().cpu().numpy(), self.alignment.shared
        ordinary = np.delete(values, special_tokens(self.source, len(values)))
        size = len(self.alignment.source_of)
        tokens = np.setdiff1d(np.arange(size), special_tokens(self.target.tokenizer, size))
        new = np.full(size, ordinary.mean())
        if bias == "keep":
            new[shared] = values[self.alignment.source_of[shared]]
        elif texts is not None:
            new[tokens] = transferred_prior(ordinary, log_counts(self.target.tokenizer, texts)[tokens])
        elif self.output is None or self.output.bias is None:
            raise ArgumentError(
                "bias='prior' needs a target model with an output bias, or texts to count; or use 'keep'"
            )
        else:
            new[tokens] = transferred_prior(ordinary, self.output.bias.detach().double().cpu().numpy()[tokens])
        return torch.from_numpy(new).to(old)

    def norm_factor(self, decoder: Tensor) -> float:
        """Return the divisor that gives shared tokens their mean row norm in the target's output matrix."""
        if self.output is None:
            raise ArgumentError("norm='target' needs a target model with an output matrix: use 'keep'")
        shared = self.alignment.shared
        norm = row_norms(decoder[self.alignment.source_of[shared]]).mean()
        return float(norm / row_norms(self.output.weight.detach()[shared]).mean())

    @property
    def output(self) -> nn.Linear | None:
        """The target's output layer."""
        return None if self.target.model is None else self.target.model.get_output_embeddings()


class Neighbours(NamedTuple):
    """The source tokens that make the row of a target token (Geng and Yang 2026, table 4)."""

    token: str
    subtokens: list[str]  # its pieces by the source's tokenizer
    made_of: list[tuple[str, float]]  # source tokens and their weights, heaviest first; a shared token is itself

    def __str__(self) -> str:
        lines = [f"  {weight:.3f}  {token}" for token, weight in self.made_of]
        return "\n".join([f"\n{self.token}: cut into {' '.join(self.subtokens) or 'nothing'}; made of", *lines])


def neighbours(
    model: SparseEncoder, target: TargetName, words: Sequence[str], *, init: TokenInit = "semantic", k: int = 5
) -> list[Neighbours]:
    """Return the `k` heaviest source tokens in the row that `transfer` would make for each of `words`.

    `words` are tokens of the target vocabulary in its spelling; `init` is "semantic" or "subtoken".

    Raises:
        ArgumentError: the target vocabulary lacks a token, or its row would not be a weighted mean.
        ModelError: as in `transfer`.
    """
    source, loaded = parts(model), load_target(target)
    tokenizer = source.tokenizer
    alignment = align(tokenizer, loaded.tokenizer)
    known = loaded.tokenizer.get_vocab()
    move = Move(tokenizer, loaded, alignment)
    move.check(init)
    units, shown = token_surfaces(loaded.tokenizer), []
    for word in as_texts(words, "words"):
        if (i := known.get(word)) is None:
            raise ArgumentError(f"{word!r} is no token of the target vocabulary")
        subtokens = tokenizer.convert_ids_to_tokens(cut(tokenizer, [units[i]])[0])
        # A shared token keeps its row.
        if (same := int(alignment.source_of[i])) >= 0:
            shown.append(Neighbours(word, subtokens, [(tokenizer.convert_ids_to_tokens(same), 1.0)]))
            continue
        # Weights of source tokens [1, v].
        row = move.weights(init, source.mlm.config.vocab_size, np.array([i]))
        if row is None:
            raise ArgumentError("init must be semantic or subtoken: only these mix source tokens into a new token")
        heaviest = np.argsort(-row.data, kind="stable")[:k]
        names = tokenizer.convert_ids_to_tokens(row.indices[heaviest].tolist())
        shown.append(Neighbours(word, subtokens, list(zip(names, row.data[heaviest].tolist(), strict=True))))
    return shown


@describes("transfer")
def _describe(step: Step) -> list[Table | str]:
    """Return a table with a row per class of tokens, and the share of the target vocabulary that was carried over."""
    rows = [
        [name, f"{count['matched']:,}", f"{count['total']:,}", f"{count['matched'] / count['total']:.1%}"]
        for name, count in step["classes"].items()
        if count["total"]
    ]
    new = f"{step['new_tokens']:,} new tokens: {step['init']}"
    lines = [f"{step['overlap']:.1%} of the target carried over, {new}", *([OWN_TERMS] if step["head_only"] else [])]
    return [Table("", ["tokens", "shared", "of", "share"], rows), *lines]


def adapt(model: SparseEncoder, settings: TransferSettings, inputs: Inputs) -> SparseEncoder:
    """Return the model after the stage of a recipe."""
    texts = inputs.texts(settings.texts) if settings.texts else None
    return transfer(model, **settings.model_dump(exclude={"texts"}), texts=texts, seed=inputs.seed)
