"""Cost of a run in operations, before it is carried out.

The sizes of backbones come from their configurations. The operations of a step are the usual count: 2 for each weight
and token, and 3 times this number where gradients are computed (Kaplan et al. 2020, section 2.1). Padding counts as
tokens; attention over the length is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from vocable.errors import ArgumentError
from vocable.indexes.exact_shards import MAKING_BYTES, SHARD_POSTINGS
from vocable.training.recipe import Recipe

CONTAINER = (  # files of a container's limit and of what it takes, of both versions of control groups
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


class Backbone(NamedTuple):
    """Millions of weights of the transformer layers, size of a hidden state, thousands of output terms."""

    weights: float
    hidden: int
    terms: float

    @property
    def operations(self) -> tuple[float, float]:
        """Operations per token of the layers, and of the output head."""
        return 2e6 * self.weights, 2e3 * self.hidden * self.terms

    @property
    def size(self) -> float:
        """The number of weights, with tied embeddings."""
        return 1e6 * self.weights + 1e3 * self.hidden * self.terms


BACKBONES = {  # by a part of the name, the first that fits
    "distilbert": Backbone(42.5, 768, 30.5),
    "distilroberta": Backbone(42.5, 768, 50.3),
    "roberta-large": Backbone(302, 1024, 50.3),
    "roberta": Backbone(85.1, 768, 50.3),
    "albert": Backbone(85.1, 768, 30.0),  # computed: the layers share their weights
    "modernbert": Backbone(110, 768, 50.4),
    "ettin": Backbone(110, 768, 50.4),
    "gte": Backbone(113, 768, 30.5),
    "in-house": Backbone(42.5, 768, 100),
    "": Backbone(85.1, 768, 30.5),
}
TFLOPS = 100.0  # 10^12 operations per second that a GPU of today sustains on such models: assumed, not measured
TOKENS = 100  # of a document
TERMS = 250  # of a document's vector
VECTOR_BYTES = 5.3  # on disk, of a term of a stored vector: measured on random weights
INDEX_BYTES = 6.2  # on disk, of a posting of an index, with its share of ids and of starts of lists
TEXT_BYTES = 610  # in memory, of a passage of MS MARCO as a document
# In memory beside the texts, of a passage of MS MARCO while BM25 is made. RM3 takes no more: its counts follow when the
# weights are done. Measured by benchmarks/bm25_memory.py at 300,000 and 600,000 passages, and extended to 8,841,823
# with the starts of posting lists, which grow faster than the passages. The first 60,000 documents take more.
LEXICAL_BYTES, FIRST_LEXICAL_BYTES, FIRST = 1_200, 2_400, 60_000
WEIGHT_BYTES = 4  # on disk, of a weight of a model
CHECKPOINT_BYTES = 12  # of a weight in a checkpoint, with Adam's two moments
TOKEN_BYTES = 4  # on disk, of a token of the windows of a pre-training
PASSAGE_BYTES = 350  # on disk, of a passage of MS MARCO as a text of prepared examples: assumed
CANDIDATE_BYTES = 8  # of a negative of prepared examples, with its score


def backbone_of(model: str) -> Backbone:
    """Return the size of a model by its name."""
    return next(size for part, size in BACKBONES.items() if part in model.lower())


class Resources(NamedTuple):
    """Bytes that the vectors of `texts` texts with `terms` terms each take while they are measured.

    Indexes are made shard by shard: beyond a single shard, memory does not grow with the vectors. It grows with the
    texts, which are in memory already.
    """

    texts: int
    terms: float
    disk: float
    memory: float

    @classmethod
    def of(cls, texts: int, terms: float) -> Resources:
        """Return the bytes by the number of terms of a text."""
        postings = texts * terms
        making = MAKING_BYTES * min(postings, SHARD_POSTINGS)
        return cls(texts, terms, postings * (VECTOR_BYTES + INDEX_BYTES), making)

    @classmethod
    def lexical(cls, texts: int) -> Resources:
        """Return the bytes of BM25, with RM3 or without, which stores nothing and is in memory as a whole."""
        return cls(texts, 0, 0, max(texts * LEXICAL_BYTES, min(texts, FIRST) * FIRST_LEXICAL_BYTES))


def free_memory() -> float | None:
    """Return the bytes of memory that this process could take; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None
    for limit, used in CONTAINER:  # of a container
        with suppress(OSError, ValueError):
            free = min(free, float(Path(limit).read_text()) - float(Path(used).read_text()))
    return free


def check_room(name: str, needed: Resources, disk: float, memory: float | None) -> None:
    """Raise `ArgumentError` if disk or memory lack the needed bytes; None is an unknown amount of memory."""
    terms = f" of {needed.terms:,.0f} terms, by a sample," if needed.terms else ""
    what = f"{name}: {needed.texts:,} texts{terms}"
    if needed.disk > disk:
        raise ArgumentError(
            f"{what} take {needed.disk / 1e9:,.0f} GB of disk for vectors and their index, and {disk / 1e9:,.0f} GB "
            "are free: name an --output on a larger disk"
        )
    if memory is not None and needed.memory > memory:
        raise ArgumentError(
            f"{what} take {needed.memory / 1e9:,.1f} GB of memory while their index is made, and {memory / 1e9:,.1f} "
            "GB are free"
        )


class Cost(NamedTuple):
    """Optimizer steps, texts to encode, operations of a GPU, seconds of one core (`studies.processor`)."""

    steps: float
    texts: float
    operations: float
    seconds: float = 0.0

    @classmethod
    def of(cls, model: str, recipe: Recipe | None, texts: int, *, adapts: bool, trains: bool, done: int = 0) -> Cost:
        """Return the cost of the parts of a recipe that are carried out, and of encoding `texts` texts.

        Another run carries out the first `done` steps of the pre-training.
        """
        layers, head = backbone_of(model).operations
        steps, operations = 0, float(texts * TOKENS * (layers + head))
        if adapts and recipe is not None and (learning := recipe.pretrain) is not None:
            batch = learning.batch_size * learning.gradient_accumulation
            steps += learning.steps - done
            tokens = (learning.steps - done) * batch * learning.max_length
            if learning.teacher is None:
                operations += 3 * tokens * (layers + learning.masking_rate * head)
            else:  # all tokens reach the head, whose terms are the teacher's; the teacher reads them, too
                of_teacher = backbone_of(learning.teacher).operations
                operations += tokens * (3 * (layers + of_teacher[1]) + sum(of_teacher))
        if trains and recipe is not None:
            training = recipe.training
            tokens = training.query_length + training.document_length * (1 + recipe.data.negatives)
            batch = training.batch_size * training.gradient_accumulation
            steps += training.steps
            operations += 3 * training.steps * batch * tokens * (layers + head)
        return cls(steps, texts, operations)

    @classmethod
    def together(cls, costs: Iterable[Cost]) -> Cost:
        """The sum of several."""
        return cls(*map(sum, zip(*[cls(0, 0, 0, 0), *costs], strict=True)))

    def cells(self, tflops: float) -> list[str]:
        """The figures as they are shown, with the hours of a GPU and of one core."""
        steps, texts, operations = (f"{value:,.0f}" for value in (self.steps, self.texts, self.operations / 1e15))
        hours = self.operations / (tflops * 1e12) / 3600, self.seconds / 3600
        return [steps, texts, operations, *(f"{value:,.1f}" for value in hours)]
