"""Masked language modelling: tasks, batches of windows, losses, and predictions of held-out windows.

The held-out windows and their masks depend only on the seed, so that runs can be compared. Their tokens are masked
uniformly, whatever masking the training uses. A training that masks whole words is the exception: held-out windows are
then masked by words, and in words of several sub-tokens also only the first or only the later sub-tokens (Kim et al.
2026, §3.2).

Letters: m masked tokens, d size of the decoder's input, v output terms, b texts of a batch, s tokens of a text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, NamedTuple, TypeAlias, cast

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.adapt.stages import PretrainSettings
from vocable.core.progress import track
from vocable.options import DType
from vocable.torch_models.cpu import in_bfloat16
from vocable.torch_models.output_vocabulary import special_tokens
from vocable.training.micro_batches import by_length, call_on_parts, in_parts, part_size
from vocable.training.pretraining.masking import (
    IGNORED,
    Masked,
    TokenIds,
    WordPart,
    mask_tokens,
    overlap_aware,
    whole_words,
)
from vocable.training.pretraining.windows import Windows

BLOCK_LOGITS = 2**25  # logits of a block: 128 MB in float32
LARGEST_SHARE = 10  # at most one window in this many is held out
HELD_OUT_BATCH = 32

# Separate random streams: the training's keys have only three numbers, so their fourth number counts as 0.
SPLIT_STREAM, MASK_STREAM, PART_STREAM = 1, 2, 3
PART_SETS: dict[str, WordPart] = {"first sub-word": "first", "later sub-words": "later"}

TokenBatch: TypeAlias = dict[str, Tensor]  # input_ids, attention_mask and labels [b, s]


def mean_cross_entropy(
    states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, margin: float = 0.0
) -> Tensor:
    """Return the mean of -log softmax(states @ weight.T + bias) at the labels: a scalar, float32, differentiable once.

    Logits are computed for a block of tokens at a time, and turned into gradients at once, so that memory holds a
    single block and the gradients. Products have autocast's type where it is on; everything else is float32.

    Args:
        states: [m, d]; weight: [v, d]; bias: [v] or None; labels: [m] below v.
        margin: subtracted from the label's logit, so that it has to exceed the others by more (Kim et al. 2026, J.4).

    >>> mean_cross_entropy(torch.zeros(3, 2), torch.zeros(4, 2), None, torch.tensor([0, 1, 3])).exp()
    tensor(4.)
    """
    return _MeanCrossEntropy.apply(states, weight, bias, labels, margin)


def token_losses(states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy of each token [m], and True where the largest logit is the label's [m]; no gradients."""
    losses, right = states.new_empty(len(states), dtype=torch.float32), torch.empty_like(labels, dtype=torch.bool)
    for block, logits in _logits(*_cast(states, weight, bias)):
        losses[block] = nn.functional.cross_entropy(logits, labels[block], reduction="none")
        right[block] = logits.argmax(dim=1) == labels[block]
    return losses, right


class _MeanCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, margin: float) -> Tensor:
        ctx.types = states.dtype, weight.dtype, None if bias is None else bias.dtype
        states, weight, bias = _cast(states, weight, bias)
        m, total = max(len(states), 1), states.new_zeros((), dtype=torch.float32)
        needed = any(ctx.needs_input_grad)
        # [m, d], [v, d] and [v]
        grads = [torch.zeros_like(part, dtype=torch.float32) for part in (states, weight, weight[:, 0])]
        for block, logits in _logits(states, weight, bias):
            picked = torch.arange(len(logits), device=logits.device), labels[block]
            logits[picked] -= margin
            norm = logits.logsumexp(dim=1)
            total += (norm - logits[picked]).sum()
            if needed:
                slope = logits.sub_(norm[:, None]).exp_()  # the softmax, in the memory of the logits
                slope[picked] -= 1
                slope /= m
                grads[2] += slope.sum(dim=0)
                slope = slope.to(states.dtype)
                grads[0][block] = (slope @ weight).float()
                grads[1] += slope.T @ states[block]
        ctx.save_for_backward(*grads)
        return total / m

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        pairs = zip(ctx.saved_tensors, ctx.types, strict=True)
        return *(None if dtype is None else (grad * grad_loss).to(dtype) for grad, dtype in pairs), None, None


def _logits(states: Tensor, weight: Tensor, bias: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
    """Yield blocks of tokens with their logits [block, v], float32."""
    rows = max(BLOCK_LOGITS // len(weight), 1)
    for start in range(0, len(states), rows):
        block = slice(start, start + rows)
        logits = nn.functional.linear(states[block], weight, bias)
        yield block, logits.float()


def _cast(states: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    device = states.device.type
    if not torch.is_autocast_enabled(device):
        return states, weight, bias
    dtype = torch.get_autocast_dtype(device)
    return states.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)


def masked_states(mlm: nn.Module, batch: TokenBatch) -> tuple[Tensor, Tensor]:
    """Return the decoder's inputs [m, d] at the m masked tokens of a batch, and their labels [m].

    The batch is encoded in parts.
    """
    tokens, parts = batch["labels"].numel(), [batch]
    if in_parts(mlm) and tokens > part_size(tokens):
        parts = [part for _, part in by_length(batch, part_size(tokens))]

    def states(part: TokenBatch) -> Tensor:
        inputs = {key: value for key, value in part.items() if key != "labels"}
        return mlm(**inputs).logits[part["labels"] != IGNORED]

    labels = torch.cat([part["labels"][part["labels"] != IGNORED] for part in parts])
    return torch.cat(call_on_parts(mlm, states, parts, tokens)), labels


class Predictions(NamedTuple):
    """Predictions of masked tokens."""

    tokens: int  # number of masked tokens, or of texts if classes are predicted
    loss: float  # mean cross-entropy, in nats
    accuracy: float  # share of tokens whose largest logit is the label's


class TeacherDistance(NamedTuple):
    """The distance of a model's logits from its teacher's."""

    terms: int  # number of terms of all texts with a logit above zero in the model or the teacher
    loss: float  # mean squared difference


class Task(ABC):
    """A pre-training task: the labels of a window, the loss of a batch, and figures of held-out windows.

    `decoder` is the layer of the output terms. The model returns the decoder's inputs instead of logits, as it does
    within `torch_models.fuse.without_logits`.
    """

    outcome: ClassVar[type[Predictions | TeacherDistance]]  # a count, then means over it
    new: NDArray[np.bool_] | None = None  # [v], True for tokens that the source vocabulary lacks; they count separately

    @abstractmethod
    def __call__(self, ids: TokenIds, rng: Generator, labels: TokenIds | None = None, part: WordPart = "all") -> Masked:
        """Return a window [s] as the model reads it, with its labels; `labels` come from `Windows.labels`."""

    def uniform(self, ids: TokenIds, rng: Generator) -> Masked:
        """Mask a held-out window uniformly, so that masking strategies can be compared on it."""
        return self(ids, rng)

    @abstractmethod
    def loss(self, model: nn.Module, batch: TokenBatch, decoder: nn.Linear) -> tuple[Tensor, int]:
        """Return the mean loss, and the number of tokens, texts or terms in the mean."""

    @abstractmethod
    def figures(self, model: nn.Module, batch: TokenBatch, decoder: nn.Linear) -> tuple[Tensor, Tensor | None]:
        """Return summands of the fields of `outcome` [fields, m], and the labels [m] if they are tokens."""


class PredictionTask(Task):
    """A task whose labels are predicted by a softmax."""

    outcome = Predictions
    margin = 0.0  # applies to the loss, not to the figures

    def inputs(self, model: nn.Module, batch: TokenBatch, decoder: nn.Linear) -> tuple[Tensor, Tensor, nn.Linear]:
        """Return the states [m, d] of the masked tokens, their labels [m], and the layer that predicts them."""
        states, labels = masked_states(model, batch)
        return states, labels, decoder

    def loss(self, model: nn.Module, batch: TokenBatch, decoder: nn.Linear) -> tuple[Tensor, int]:
        states, labels, layer = self.inputs(model, batch, decoder)
        return mean_cross_entropy(states, layer.weight, layer.bias, labels, self.margin), len(labels)

    def figures(self, model: nn.Module, batch: TokenBatch, decoder: nn.Linear) -> tuple[Tensor, Tensor | None]:
        states, labels, layer = self.inputs(model, batch, decoder)
        losses, right = token_losses(states, layer.weight, layer.bias, labels)
        return torch.stack([torch.ones_like(losses), losses, right.float()]), labels


class MaskingTask(PredictionTask):
    """Masks tokens of a window by the settings: random tokens, or whole words where the windows have words.

    Some masked tokens become random tokens, drawn from the `size` tokens that the model reads.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, settings: PretrainSettings, size: int, new: NDArray[np.bool_] | None
    ) -> None:
        self._settings, self.new, self.margin = settings, new, settings.margin
        self._mask_id, self._size = cast(int, tokenizer.mask_token_id), size
        self._special = np.zeros(max(size, 1 + max(tokenizer.get_vocab().values())), dtype=np.bool_)
        self._special[special_tokens(tokenizer, len(self._special))] = True

    def __call__(self, ids: TokenIds, rng: Generator, labels: TokenIds | None = None, part: WordPart = "all") -> Masked:
        rate, weight = self._settings.masking_rate, self._settings.new_token_weight
        if labels is not None:
            by_token = self._settings.masking == "longest-span"
            return whole_words(
                ids, labels, rng, rate=rate, part=part, by_token=by_token, mask_id=self._mask_id, size=self._size
            )
        if self._settings.masking == "uniform" or self.new is None:
            return self.uniform(ids, rng)
        probabilities = overlap_aware(self._special[ids], self.new[ids], rate, weight)
        return mask_tokens(ids, probabilities, rng, mask_id=self._mask_id, size=self._size)

    def uniform(self, ids: TokenIds, rng: Generator) -> Masked:
        probabilities = np.where(self._special[ids], 0.0, self._settings.masking_rate)
        return mask_tokens(ids, probabilities, rng, mask_id=self._mask_id, size=self._size)


class MaskedWindows(Dataset[Masked]):
    """The windows of a run as the model sees them: every epoch has each of `rows`, with a new order and new masks."""

    def __init__(self, windows: Windows, rows: TokenIds, task: Task, draws: int, seed: int) -> None:
        self._windows, self._rows, self._task, self._draws, self._seed = windows, rows, task, draws, seed
        self._order: tuple[int, TokenIds] = (-1, rows)

    def __len__(self) -> int:
        return self._draws

    def order(self, epoch: int) -> TokenIds:
        """Return the rows in the order of an epoch."""
        return np.random.default_rng((self._seed, epoch)).permutation(self._rows)

    def __getitem__(self, index: int) -> Masked:
        epoch, position = divmod(index, len(self._rows))
        if self._order[0] != epoch:
            self._order = epoch, self.order(epoch)
        row = int(self._order[1][position])
        rng = np.random.default_rng((self._seed, epoch, position))
        return self._task(self._windows[row], rng, self._windows.labels(row))


def collate(batch: Iterable[Masked], padding: int) -> TokenBatch:
    """Pad masked windows on the right with the token `padding`."""
    ids, labels = ([torch.from_numpy(part) for part in parts] for parts in zip(*batch, strict=True))
    lengths = torch.tensor(list(map(len, ids)))
    attention = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=padding),
        "attention_mask": attention.long(),
        "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED),
    }


def split_windows(windows: int, held_out: int, seed: int) -> tuple[TokenIds, TokenIds]:
    """Return the numbers of the windows to learn from, and of `held_out` windows, at most a tenth; both ascend."""
    order = np.random.default_rng((seed, 0, 0, SPLIT_STREAM)).permutation(windows)
    count = min(held_out, windows // LARGEST_SHARE)
    return np.sort(order[count:]), np.sort(order[:count])


class HeldOut:
    """The windows `rows`, with masks that do not change."""

    def __init__(
        self, windows: Windows, rows: TokenIds, task: Task, *, padding: int, seed: int, dtype: DType = "auto"
    ) -> None:
        self._task, self._sets = task, defaultdict[str, list[Masked]](list)
        for i, row in enumerate(map(int, rows)):
            ids, labels = windows[row], windows.labels(row)
            rng = np.random.default_rng((seed, 0, i, MASK_STREAM))
            if labels is None:
                self._sets["all"].append(task.uniform(ids, rng))
                continue
            self._sets["all"].append(task(ids, rng, labels))
            for name, part in PART_SETS.items():
                masked = task(ids, np.random.default_rng((seed, 0, i, PART_STREAM)), labels, part)
                if (masked.labels != IGNORED).any():
                    self._sets[name].append(masked)
        self._new = None if task.new is None or not task.new.any() else torch.from_numpy(task.new)
        self._padding, self._dtype = padding, dtype

    @torch.inference_mode()
    def evaluate(self, mlm: PreTrainedModel, decoder: nn.Linear) -> dict[str, Predictions | TeacherDistance]:
        """Return the outcome on "all" windows, or by "shared" and "new" tokens if the model has new tokens.

        Masks of whole words add the groups "first sub-word" and "later sub-words". Empty groups are left out. Call it
        within `torch_models.fuse.without_logits`; it restores the model's mode.
        """
        training, device = mlm.training, mlm.device
        mlm.eval()
        sums: dict[str, NDArray[np.float64]] = {}
        with torch.autocast(device.type, torch.bfloat16, enabled=in_bfloat16(self._dtype, device)):
            for name, texts in self._sets.items():
                # An iterator has no length: the batches are no share of the training's steps.
                for start in track(iter(range(0, len(texts), HELD_OUT_BATCH)), "held-out batches"):
                    batch = collate(texts[start : start + HELD_OUT_BATCH], self._padding)
                    batch = {key: part.to(device) for key, part in batch.items()}
                    # Figures of each masked token [figures, tokens]; the first is its count. Its label tells the group.
                    figures, labels = self._task.figures(mlm, batch, decoder)
                    groups: dict[str, slice | Tensor] = {name: slice(None)}
                    if self._new is not None and labels is not None:
                        is_new = self._new[labels.cpu()].to(device)
                        groups = {"shared": ~is_new, "new": is_new}
                    for group, members in groups.items():
                        summed = figures[:, members].sum(dim=1, dtype=torch.float64).cpu().numpy()
                        sums[group] = sums.get(group, 0.0) + summed
        mlm.train(training)
        outcomes = ((group, int(count), figures) for group, (count, *figures) in sums.items())
        return {
            group: self._task.outcome(count, *(float(total) / count for total in figures))
            for group, count, figures in outcomes
            if count
        }
