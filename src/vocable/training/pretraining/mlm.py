"""The task of masked language modelling: masked batches, the loss of hidden tokens, and how well they are guessed.

Which windows are held out, and their masks, is a function of the seed, so that runs can be compared. Their tokens are
masked uniformly however the training masks; where whole words are masked, they are here, too, and of words of several
sub-tokens once only the first and once only the later ones ("The Pre-Training Study of Expanded-SPLADE Models", §3.2).

Letters: m hidden tokens, d size of the decoder's input, v output terms, s tokens of a text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vocable.encoder.special_terms import special_tokens
from vocable.encoder.text_encoder import in_bfloat16
from vocable.options import DType
from vocable.training.micro_batches import by_length, in_parts, in_threads, part_size, threads_pay
from vocable.training.pretraining.windows import IGNORED, Masked, Part, Windows, mask_tokens, overlap_aware, whole_words
from vocable.training.settings import PretrainSettings

ENTRIES = 2**25  # logits of a block: 128 MB in float32


def mean_cross_entropy(states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
    """The mean of -log softmax(states @ weight.T + bias) at the labels: a scalar, float32, differentiable once.

    The logits of a block of tokens are made at a time, and taken at once is what the backward pass needs of them:
    nothing but the gradients is held beside one block. Products are computed in the type of autocast where it is on,
    everything else in float32, the gradients of float32 weights, too.

    Of states [m, d], weight [v, d], bias [v] or None, and labels [m] below v.

    >>> mean_cross_entropy(torch.zeros(3, 2), torch.zeros(4, 2), None, torch.tensor([0, 1, 3])).exp()
    tensor(4.)
    """
    loss: Tensor = _MeanCrossEntropy.apply(states, weight, bias, labels)
    return loss


def guess(states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The cross-entropy of each token [m], and whether its largest logit is the label's [m]; no gradients."""
    losses, right = states.new_empty(len(states), dtype=torch.float32), torch.empty_like(labels, dtype=torch.bool)
    for block, logits in _logits(*_cast(states, weight, bias)):
        losses[block] = nn.functional.cross_entropy(logits, labels[block], reduction="none")
        right[block] = logits.argmax(dim=1) == labels[block]
    return losses, right


class _MeanCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Tensor:
        ctx.types = states.dtype, weight.dtype, None if bias is None else bias.dtype
        states, weight, bias = _cast(states, weight, bias)
        m, total = max(len(states), 1), states.new_zeros((), dtype=torch.float32)
        needed = any(ctx.needs_input_grad)
        # [m, d], [v, d] and [v]
        grads = [torch.zeros_like(given, dtype=torch.float32) for given in (states, weight, weight[:, 0])]
        for block, logits in _logits(states, weight, bias):
            picked = torch.arange(len(logits), device=logits.device), labels[block]
            norm = logits.logsumexp(dim=1)
            total += (norm - logits[picked]).sum()
            if needed:
                slope = logits.sub_(norm[:, None]).exp_()  # the softmax, where the logits were
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
        return *(None if dtype is None else (grad * grad_loss).to(dtype) for grad, dtype in pairs), None


def _logits(states: Tensor, weight: Tensor, bias: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
    """Blocks of tokens with their logits [block, v], float32."""
    rows = max(ENTRIES // len(weight), 1)
    for start in range(0, len(states), rows):
        block = slice(start, start + rows)
        logits = nn.functional.linear(states[block], weight, bias)
        yield block, logits.float()


def _cast(states: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """The type that autocast computes products in."""
    device = states.device.type
    if not torch.is_autocast_enabled(device):
        return states, weight, bias
    dtype = torch.get_autocast_dtype(device)
    return states.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)


class Guessing(ABC):
    """A task: labels that a model is to guess of windows.

    `decoder` is the layer of the output terms; the model gives its inputs in place of logits, as within
    `encoder.fuse.without_logits`.
    """

    @abstractmethod
    def __call__(
        self,
        ids: NDArray[np.int64],
        rng: np.random.Generator,
        words: NDArray[np.int64] | None = None,
        part: Part = "all",
    ) -> Masked:
        """A window [s] as the model sees it, and the labels of its tokens; `words` are what `Windows.words` gives."""

    def uniform(self, ids: NDArray[np.int64], rng: np.random.Generator) -> Masked:
        """The same for texts by which ways of masking are compared."""
        return self(ids, rng)

    def inputs(
        self, model: nn.Module, batch: dict[str, Tensor], decoder: nn.Linear
    ) -> tuple[Tensor, Tensor, nn.Linear]:
        """What is guessed from [m, d], at the hidden tokens only, the labels [m], and the layer that guesses."""
        return *hidden_tokens(model, batch), decoder

    def loss(self, model: nn.Module, batch: dict[str, Tensor], decoder: nn.Linear) -> tuple[Tensor, int]:
        """The mean cross-entropy of the guesses, and how many these are."""
        states, labels, layer = self.inputs(model, batch, decoder)
        return mean_cross_entropy(states, layer.weight, layer.bias, labels), len(labels)


class Masker(Guessing):
    """Hides tokens of a window as the settings say: random ones, or whole words where the windows have words.

    Args:
        size: v, the tokens that the model reads: some hidden ones become another, drawn from all.
        new: [v], True for the tokens that are not of the source vocabulary; needed for overlap-aware masking.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        settings: PretrainSettings,
        size: int,
        new: NDArray[np.bool_] | None = None,
    ) -> None:
        self._settings, self._new = settings, new
        self._common: Any = {"mask_id": tokenizer.mask_token_id, "size": size}
        self._special = np.zeros(max(size, 1 + max(tokenizer.get_vocab().values())), dtype=np.bool_)
        self._special[special_tokens(tokenizer, len(self._special))] = True

    def __call__(
        self,
        ids: NDArray[np.int64],
        rng: np.random.Generator,
        words: NDArray[np.int64] | None = None,
        part: Part = "all",
    ) -> Masked:
        """Hide tokens of a window [s]; `words` [s] says which word each belongs to, where whole words are masked.

        With a `part`, of words of several sub-tokens only the first or the later ones: what is left helps to guess.
        """
        rate, weight = self._settings.masking_rate, self._settings.new_token_weight
        if words is not None:
            return whole_words(ids, words, rng, rate=rate, part=part, **self._common)
        if self._settings.masking == "uniform" or self._new is None:
            return self.uniform(ids, rng)
        probabilities = overlap_aware(self._special[ids], self._new[ids], rate, weight)
        return mask_tokens(ids, probabilities, rng, **self._common)

    def uniform(self, ids: NDArray[np.int64], rng: np.random.Generator) -> Masked:
        """Hide tokens without regard to what is new: for texts by which ways of masking are compared."""
        probabilities = np.where(self._special[ids], 0.0, self._settings.masking_rate)
        return mask_tokens(ids, probabilities, rng, **self._common)


Hide: TypeAlias = Callable[[NDArray[np.int64], np.random.Generator, NDArray[np.int64] | None], Masked]


def in_order(rows: NDArray[np.int64], epoch: int, seed: int) -> NDArray[np.int64]:
    """The rows as an epoch shows them."""
    return np.random.default_rng((seed, epoch)).permutation(rows)


class MaskedWindows(Dataset[Masked]):
    """The run as a list: item i is the i-th text that the model sees, already masked.

    Every epoch shows each of `rows` once, in another order and under other masks.
    """

    def __init__(self, windows: Windows, rows: NDArray[np.int64], hide: Hide, draws: int, seed: int) -> None:
        self._windows, self._rows, self._hide, self._draws, self._seed = windows, rows, hide, draws, seed
        self._order: tuple[int, NDArray[np.int64]] = (-1, rows)

    def __len__(self) -> int:
        return self._draws

    def __getitem__(self, index: int) -> Masked:
        epoch, place = divmod(index, len(self._rows))
        if self._order[0] != epoch:
            self._order = (epoch, in_order(self._rows, epoch, self._seed))
        row = int(self._order[1][place])
        rng = np.random.default_rng((self._seed, epoch, place))
        return self._hide(self._windows[row], rng, self._windows.words(row))


def collate(batch: Iterable[Masked], padding: int) -> dict[str, Tensor]:
    """Pad masked texts on the right with the token `padding`: input_ids, attention_mask and labels, all [b, s]."""
    ids, labels = ([torch.from_numpy(part) for part in parts] for parts in zip(*batch, strict=True))
    lengths = torch.tensor(list(map(len, ids)))
    attention = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
    return {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=padding),
        "attention_mask": attention.long(),
        "labels": pad_sequence(labels, batch_first=True, padding_value=IGNORED),
    }


def hidden_tokens(mlm: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """What the m hidden tokens of a batch give the decoder [m, d], and their labels [m]: of no other token more.

    `mlm` gives the decoder's inputs in place of logits, as within `encoder.fuse.without_logits`.
    """
    tokens, parts = batch["labels"].numel(), [batch]
    if in_parts(mlm) and tokens > part_size(tokens):
        parts = [part for _, part in by_length(batch, part_size(tokens))]

    def states(part: dict[str, Tensor]) -> Tensor:
        inputs = {key: value for key, value in part.items() if key != "labels"}
        found: Tensor = mlm(**inputs).logits[part["labels"] != IGNORED]
        return found

    labels = torch.cat([some[some != IGNORED] for some in (part["labels"] for part in parts)])
    if threads_pay(mlm, len(parts), tokens):
        return torch.cat(in_threads(mlm, states, parts)), labels
    return torch.cat([states(part) for part in parts]), labels


LARGEST_SHARE = 10  # at most one window in so many is kept apart
BATCH = 32

# Streams of random numbers of their own: the training's keys have no fourth number, which is the same as a zero.
CHOICE, MASKS, PARTS = 1, 2, 3
PART_SETS: dict[str, Part] = {"first sub-word": "first", "later sub-words": "later"}


class Guesses(NamedTuple):
    """How well hidden tokens are guessed."""

    tokens: int  # that were to be guessed; of classes, texts
    loss: float  # mean cross-entropy, in nats
    accuracy: float  # share of which the largest logit is the right one


def split(windows: int, held_out: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of the windows to learn from, and of `held_out`, at most a tenth, kept apart; ascending."""
    order = np.random.default_rng((seed, 0, 0, CHOICE)).permutation(windows)
    count = min(held_out, windows // LARGEST_SHARE)
    return np.sort(order[count:]), np.sort(order[:count])


class HeldOut:
    """The windows `rows`, masked once and for all.

    `new` [v] is True for the tokens that are not of the source vocabulary; None where nothing is new.
    """

    def __init__(
        self,
        windows: Windows,
        rows: NDArray[np.int64],
        task: Guessing,
        *,
        new: NDArray[np.bool_] | None,
        padding: int,
        seed: int,
        dtype: DType = "auto",
    ) -> None:
        self._task, self._sets = task, defaultdict[str, list[Masked]](list)
        for i, row in enumerate(map(int, rows)):
            ids, words = windows[row], windows.words(row)
            rng = np.random.default_rng((seed, 0, i, MASKS))
            if words is None:
                self._sets["all"].append(task.uniform(ids, rng))
                continue
            self._sets["all"].append(task(ids, rng, words))
            for name, part in PART_SETS.items():
                masked = task(ids, np.random.default_rng((seed, 0, i, PARTS)), words, part)
                if (masked.labels != IGNORED).any():
                    self._sets[name].append(masked)
        self._new = None if new is None or not new.any() else torch.from_numpy(new)
        self._padding, self._dtype = padding, dtype

    @torch.inference_mode()
    def guess(self, mlm: PreTrainedModel, decoder: nn.Linear) -> dict[str, Guesses]:
        """Guesses of "all" tokens, or where some are new of the "shared" and the "new" ones.

        Where whole words are masked, "all" are their tokens, and "first sub-word" and "later sub-words" are sets of
        their own. What no hidden token belongs to is left out, so that without windows there is nothing. Within
        `encoder.fuse.without_logits`; the model's mode is left as it is.
        """
        training, device = mlm.training, mlm.device
        mlm.eval()
        sums: dict[str, NDArray[np.float64]] = defaultdict(lambda: np.zeros(3))
        with torch.autocast(device.type, torch.bfloat16, enabled=in_bfloat16(self._dtype, device)):
            for name, texts in self._sets.items():
                for start in range(0, len(texts), BATCH):
                    batch = collate(texts[start : start + BATCH], self._padding)
                    batch = {key: part.to(device) for key, part in batch.items()}
                    states, labels, layer = self._task.inputs(mlm, batch, decoder)
                    losses, right = guess(states, layer.weight, layer.bias, labels)
                    figures = torch.stack([torch.ones_like(losses), losses, right.float()])
                    for group, members in self._groups(name, labels.cpu()).items():
                        sums[group] += figures[:, members.to(device)].sum(dim=1, dtype=torch.float64).cpu().numpy()
        mlm.train(training)
        return {
            group: Guesses(int(tokens), loss / tokens, right / tokens)
            for group, (tokens, loss, right) in ((group, map(float, total)) for group, total in sums.items())
            if tokens
        }

    def _groups(self, name: str, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        if self._new is None:
            return {name: torch.ones_like(labels, dtype=torch.bool)}
        new = self._new[labels]
        return {"shared": ~new, "new": new}
