"""The plan of a tuning, which is the steps that fit the time, and its result; no PyTorch."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from shlex import quote

from psutil import Process, virtual_memory

from vocable.core.storage import read_record
from vocable.core.tables import Table, Tabled, counted
from vocable.errors import ArgumentError, DataError, ModelError
from vocable.language.coverage import foreign
from vocable.tuning.recipe import QUESTIONS_PER_STEP

logger = logging.getLogger(__name__)

TUNING_FILE = "tuning.json"  # file in the folder of a tuned model
# Mean differences of nDCG@10 on queries of people; docs/experiments/tuning.md
EXPECTED_GAIN = "+0.01 nDCG@10 of the model alone, and less than +0.005 of a search by all kinds of vectors"

RESERVE = 0.85  # share of the minutes that is planned
ENCODED = 0.4  # largest share of the planned time for encoding
MOST_DOCUMENTS, FEWEST_DOCUMENTS = 20_000, 2_000  # documents to learn from, where there are as many
LEAST_STEPS = 2  # in the first step the learning rate is 0
FEWEST_STEPS, TRAINING_STEPS = 10, 250  # fewest steps without a warning, and most steps
EXPORT_STEPS = 4  # a graph of the trained model takes the time of about so many training steps
FULL_BATCHES = 0.97  # share of the questions in full batches: a batch repeats no text, an incomplete batch is left out


@dataclass(frozen=True)
class Reading:
    """Figures of the documents, and of their words in a model's vocabulary."""

    documents: int
    repeated: int  # documents with the words of an earlier document, or without words
    words: float  # median number of words of a document
    tokens_per_word: float
    unknown: float  # share of unknown tokens
    questions: float  # mean number of questions that a document gives
    unit: str = "word"  # or character, in scripts without spaces


def check_vocabulary(name: str, reading: Reading) -> None:
    """Raise `ModelError` if the documents are in another language than the vocabulary."""
    if figures := foreign(reading.tokens_per_word, reading.unknown, reading.unit):
        raise ModelError(
            f"{name}: its vocabulary does not fit these documents ({figures}): tune a model of their language, or "
            "give this model another vocabulary first (vocable train-vocabulary, vocable transfer)"
        )


def check_questions(reading: Reading) -> None:
    """Raise `DataError` if the documents give too few questions for a step of the training."""
    count = int(reading.questions * (reading.documents - reading.repeated))
    if count < QUESTIONS_PER_STEP:
        raise DataError(
            f"titles and texts are too short: they give about {counted(count, 'question')}, and a step needs "
            f"{QUESTIONS_PER_STEP}; queries of people or a generator (a model that writes questions) help"
        )


@dataclass(frozen=True)
class TuningSpeed:
    """Speed of this machine with a model and typical texts of the documents, and the memory of a training there."""

    texts_per_second: float  # documents encoded
    seconds_per_step: float  # training steps
    gigabytes: float = 0.0


@dataclass(frozen=True)
class Plan(Tabled):
    """The plan of a tuning. It is made once: a resumed run keeps it, even if the machine has another speed then."""

    reading: Reading
    speed: TuningSpeed
    documents: int  # to learn from
    minutes: float
    steps: int  # training steps
    indexed: bool = False  # the documents are encoded and indexed: queries that do not come from them find theirs

    def check_memory(self) -> None:
        """Raise `ArgumentError` if the plan needs more memory than is free."""
        free = (virtual_memory().available + Process().memory_info().rss) / 1e9
        if self.speed.gigabytes > free:
            needed = (
                f"a tuning of this model needs about {self.speed.gigabytes:.1f} GB of memory, and {free:.1f} are free"
            )
            raise ArgumentError(f"{needed}: close other programs, or take a smaller model")

    @property
    def expected_minutes(self) -> float:
        """The minutes that encoding and training take at the measured speed."""
        return (self._encoding + self.steps * self.speed.seconds_per_step) / 60

    @property
    def _encoding(self) -> float:
        return self.documents / self.speed.texts_per_second if self.indexed else 0.0

    def stages(self, *, graph: bool) -> dict[str, float]:
        """Return the planned seconds of the stages in order."""
        stages = {"index": self._encoding} if self.indexed else {}
        stages["train"] = self.steps * self.speed.seconds_per_step
        if graph:
            stages["export-model"] = EXPORT_STEPS * self.speed.seconds_per_step
        return stages

    def lines(self) -> list[tuple[str, str]]:
        """Return the figures of the documents, the machine and the work, each with its name."""
        reading, speed = self.reading, self.speed
        encoded = f"{speed.texts_per_second:,.0f} texts/s encoded, " if self.indexed else ""
        return [
            ("documents", f"{reading.documents:,}, {reading.repeated:,} of them repeated or empty"),
            ("words of a document", f"{reading.words:.0f}, median"),
            ("tokens per word", f"{reading.tokens_per_word:.2f}, {reading.unknown:.1%} unknown"),
            ("speed", f"{encoded}{speed.seconds_per_step:.1f} s a training step"),
            ("questions", f"{reading.questions:.1f} a document, of {self.documents:,}"),
            ("memory", f"about {speed.gigabytes:.1f} GB"),
            ("training", f"{counted(self.steps, 'step')} of {QUESTIONS_PER_STEP} questions"),
            ("time", f"about {max(1, self.expected_minutes):.0f} of {self.minutes:g} minutes"),
        ]

    def table(self) -> Table:
        """Return the lines as a table."""
        return Table("plan", ["", "figure"], [list(line) for line in self.lines()])

    def to_json(self) -> dict[str, object]:
        """Return the plan as JSON values."""
        return asdict(self) | {"expected_minutes": self.expected_minutes}


@dataclass(frozen=True)
class Tuned(Tabled):
    """The result of a tuning."""

    model: str  # that was tuned
    corpus: str
    examples: int  # questions that were learned from
    steps: int
    minutes: float  # duration of the last run
    output: Path = Path()

    @classmethod
    def read(cls, folder: str | Path) -> Tuned:
        """Read the result in the folder of a tuned model."""
        return replace(read_record(Path(folder, TUNING_FILE), cls), output=Path(folder))

    def table(self) -> list[Table | str]:
        """Return a sentence about the training, and how to measure the model."""
        learned = (
            f"{self.examples:,} questions learned from in {counted(self.steps, 'step')}; {self.minutes:.0f} minutes"
        )
        measure = f"vocable evaluate {quote(self.model)} {quote(str(self.output))} --dataset SOURCE --hybrid"
        return [learned, f"Expect {EXPECTED_GAIN}.", f"Judged queries tell what it gained here: {measure}"]

    def next_command(self) -> str:
        """Return the command that indexes the documents with the tuned model."""
        return f"vocable index {quote(str(self.output))} {quote(self.corpus)} -o my-index"

    def to_json(self) -> dict[str, object]:
        """Return the result as JSON values."""
        return asdict(self) | {"output": str(self.output)}


def make_plan(reading: Reading, speed: TuningSpeed, minutes: float, *, indexed: bool) -> Plan:
    """Return the plan for documents on a machine.

    Raises `ArgumentError` if not even two steps of training fit into the minutes.
    """
    budget, distinct = minutes * 60 * RESERVE, reading.documents - reading.repeated
    documents, encoding = min(distinct, MOST_DOCUMENTS), 0.0
    if indexed:
        documents = min(documents, max(FEWEST_DOCUMENTS, int(ENCODED * budget * speed.texts_per_second)))
        encoding = documents / speed.texts_per_second
    most = _most_steps(reading, documents)
    least = min(LEAST_STEPS, most)
    if encoding + least * speed.seconds_per_step > minutes * 60:
        needed = ceil((encoding + min(FEWEST_STEPS, most) * speed.seconds_per_step) / RESERVE / 60)
        raise ArgumentError(f"minutes must be at least {needed} at the speed of this machine, not {minutes:g}")
    steps = min(int((budget - encoding) / speed.seconds_per_step), most)
    return Plan(reading, speed, documents, minutes, max(least, steps), indexed)


def warn_of_few_steps(plan: Plan) -> None:
    """Log a warning if the plan has too few steps to make a difference: little time, a busy machine, few questions."""
    if plan.steps >= FEWEST_STEPS:
        return
    steps, rarely = counted(plan.steps, "step"), f"fewer than {FEWEST_STEPS} rarely make a difference"
    if plan.steps < _most_steps(plan.reading, plan.documents):
        logger.warning(
            "%g minutes allow %s of training at the speed just measured, and %s: give it more minutes, or repeat this "
            "while the machine is idle",
            *(plan.minutes, steps, rarely),
        )
    else:
        documents = counted(plan.documents, "document")
        logger.warning("%s: questions for %s of training, and %s: add documents", documents, steps, rarely)


def _most_steps(reading: Reading, documents: int) -> int:
    """Return the number of steps that the questions of this number of documents allow."""
    return max(1, min(TRAINING_STEPS, int(FULL_BATCHES * reading.questions * documents) // QUESTIONS_PER_STEP))
