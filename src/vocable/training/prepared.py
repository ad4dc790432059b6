"""Examples that are read once and kept as numbers of texts; runs may share them.

A folder has each text once. It has the candidates of each query by system, as numbers of texts. The negatives of a pass
are sampled from these numbers: the first or, again in each pass, random ones. A data set has numbers, too, which become
texts when a batch is read.

Letters: t texts, m examples, g queries with their candidates, l lists of candidates, c candidates, n negatives.
"""

from __future__ import annotations

import json
import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import blake2b
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from datasets import Dataset, concatenate_datasets
from numpy.typing import NDArray

from vocable.core.arrays import holds_arrays, load_arrays, save_arrays
from vocable.core.fingerprint import DERIVED, fingerprint
from vocable.core.progress import track
from vocable.core.storage import finish, finished, resumable
from vocable.data import read_examples, read_queries
from vocable.data.read import crops_of
from vocable.data.sources import parse_source
from vocable.errors import DataError
from vocable.training.negatives import ScoresOf, documents_of, mined_answers, stored_scores
from vocable.training.recipe import DataSettings, HardNegatives

logger = logging.getLogger(__name__)
KIND = "examples"
ON_DISK = None, "beir", "file"  # schemes of sources that are files or folders
SOURCE_BITS = 40  # low bits of a number in a data set, which number the text; the high bits number its source


class PreparedExamples:
    """Examples in a folder, memory-mapped.

    `query`, `positive` int32 [m] are texts, `own` float32 [m] the positives' scores, `group` int32 [m] the queries.
    `systems` int64 [g + 1] has the first list of each query, `lists` int64 [l + 1] the first candidate of each list,
    `candidates` int32 [c] texts with their `scores` float32 [c]. An unknown score is NaN.
    """

    def __init__(self, folder: Path, verify: bool = True) -> None:
        self.folder = folder
        arrays, header = load_arrays(folder, KIND, verify=verify)
        self.source, self.ids, self.left_out = str(header["source"]), bool(header["ids"]), int(header["left_out"])
        self._offsets, self._bytes = arrays["text_offsets"], arrays["text_bytes"]
        self.query, self.positive, self.own = arrays["query"], arrays["positive"], arrays["own"]
        self.group, self.systems, self.lists = arrays["group"], arrays["systems"], arrays["lists"]
        self.candidates, self.scores = arrays["candidates"], arrays["scores"]

    def text(self, number: int) -> str:
        """Return a text by its number."""
        return self._bytes[self._offsets[number] : self._offsets[number + 1]].tobytes().decode()

    def queries(self) -> Iterator[str]:
        """Yield the texts of the different queries, in order."""
        return (self.text(row) for row in self.query[np.unique(self.group, return_index=True)[1]].tolist())

    def __reduce__(self) -> tuple[type[Self], tuple[Path, bool]]:
        return type(self), (self.folder, False)


def open_passes(source: str | HardNegatives, cache: Path) -> Callable[[int], PreparedExamples]:
    """Return a function that returns the examples of a source in a pass; only crops differ from pass to pass.

    The source is a folder of prepared examples, or `cache` keeps its examples prepared.
    """
    shared, folder = isinstance(source, str) and holds_arrays(source), cache / "prepared"
    first = PreparedExamples(Path(str(source))) if shared else prepare(source, folder)
    if isinstance(source, HardNegatives) or parse_source(source)[0] != "crops":
        return lambda turn: first
    return lambda turn: prepare(source, folder, turn=turn) if turn else first


def prepared_folder(source: str | HardNegatives, folder: Path, turn: int = 0) -> Path:
    """Return the folder below `folder` that has, or will have, the examples of a source in a pass."""
    key = _key(source) + (f" {turn}" if turn else "")
    return folder / blake2b(key.encode(), digest_size=8).hexdigest()


def _key(source: str | HardNegatives) -> str:
    return json.dumps(source if isinstance(source, str) else source.model_dump())


def _places(source: str | HardNegatives) -> list[str]:
    return [source] if isinstance(source, str) else source.places()


def _is_gone(name: str) -> bool:
    """Return whether a source is a file or a folder that does not exist any more."""
    scheme, place, *_ = parse_source(name)
    if scheme in DERIVED:
        return _is_gone(name.partition(":")[2])
    return scheme in ON_DISK and not Path(place).exists()


def prepare(
    source: str | HardNegatives, folder: Path, scores: ScoresOf | None = None, *, turn: int = 0
) -> PreparedExamples:
    """Read a source once, and keep its examples below `folder`; a repeated call opens them, even if a file is gone.

    `scores` replace the scores of `source.scores`, whose file then only tells whether the scores have changed. Examples
    that are crops are the crops of pass `turn`.

    Raises:
        ArgumentError: the source has changed since.
        DataError: the source cannot be read, or has no example.
    """
    output, named = prepared_folder(source, folder, turn), _places(source)
    # A source that is gone cannot have changed.
    if any(map(_is_gone, named)) and output.exists():
        return PreparedExamples(output)
    settings = {"source": _key(source), "turn": turn, "inputs": fingerprint(*named)}
    folder.mkdir(parents=True, exist_ok=True)
    if not finished(output, settings):
        with resumable(output, settings) as work, closing(_Preparation(work)) as making:
            if isinstance(source, str):
                making.read_texts(source, turn)
            else:
                making.read_ids(source, work, scores)
            header: dict[str, object] = {"source": making.place, "ids": making.ids, "left_out": making.left}
            examples = work / "made"
            save_arrays(examples, KIND, making.arrays(), header)
            finish(work, output, examples)
    return PreparedExamples(output)


class _Preparation:
    """Collects the arrays while a source is read; the texts go to a file at once."""

    def __init__(self, work: Path) -> None:
        self._path = work / "texts.raw"
        self._file = self._path.open("wb")
        self._offsets, self._systems, self._lists = array("q", [0]), array("q", [0]), array("q", [0])
        self._numbers = {name: array("i") for name in ("query", "positive", "group", "candidates")}
        self._scores = {name: array("f") for name in ("own", "scores")}
        self.left, self.ids, self.place = 0, False, ""

    def close(self) -> None:
        self._file.close()

    def read_texts(self, source: str, turn: int) -> None:
        """Read examples of texts. Each text is kept once, by its hash, as in `vocable.data.docstore.IdSet`."""
        self.place, numbers = source, dict[int, int]()

        def number_of(text: str) -> int:
            number = numbers.get(key := hash(text))
            if number is None:
                number = numbers[key] = self._text(text)
            return number

        for example in track(crops_of(source, turn) or read_examples(source), "examples"):
            positive_score, *scores = example.scores or [np.nan] * (1 + len(example.negatives))
            self._candidates([(number_of(text), score) for text, score in zip(example.negatives, scores, strict=True)])
            self._example(number_of(example.query), number_of(example.positive), positive_score)

    def read_ids(self, source: HardNegatives, cache: Path, scores: ScoresOf | None) -> None:
        """Read ids, and the texts that they name."""
        self.place, self.ids = source.file, True
        if scores is None and source.scores is not None:
            scores = stored_scores(source.scores, cache)
        # Row of each document's text by id.
        rows = {name: self._text(text) for name, text in track(documents_of(source.corpus), "corpus")}
        queries = {query.id: query.text for query in read_queries(source.queries)}
        for mined in track(mined_answers(source, scores), "hard negatives"):
            positives = [
                (row, np.nan if score is None else score)
                for name, score in mined.positives
                if (row := rows.get(name)) is not None and (scores is None or score is not None)
            ]
            text = queries.get(mined.query)
            self.left += len(mined.positives) - (0 if text is None else len(positives))
            if text is None or not positives:
                continue
            # Candidates of each system; one example for each positive.
            lists = [
                [(rows[name], np.nan if score is None else score) for name, score in candidates if name in rows]
                for candidates in mined.systems
            ]
            self._candidates(*lists)
            query = self._text(text)
            for positive, score in positives:
                self._example(query, positive, score)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of everything that was read."""
        if not self._numbers["query"]:
            raise DataError("no example", source=self.place)
        self._file.close()
        size = self._path.stat().st_size
        texts = np.memmap(self._path, np.uint8, "r") if size else np.empty(0, np.uint8)
        offsets = {"text_offsets": self._offsets, "systems": self._systems, "lists": self._lists}
        arrays = {"text_bytes": texts} | {name: np.frombuffer(values, np.int64) for name, values in offsets.items()}
        arrays |= {name: _buffer(values, np.int32) for name, values in self._numbers.items()}
        return arrays | {name: _buffer(values, np.float32) for name, values in self._scores.items()}

    def _text(self, text: str) -> int:
        content = text.encode()
        self._file.write(content)
        self._offsets.append(self._offsets[-1] + len(content))
        return len(self._offsets) - 2

    def _candidates(self, *lists: Sequence[tuple[int, float]]) -> None:
        """Add the candidates of a query, by system."""
        for candidates in lists:
            self._numbers["candidates"].extend(row for row, _ in candidates)
            self._scores["scores"].extend(score for _, score in candidates)
            self._lists.append(len(self._numbers["candidates"]))
        self._systems.append(len(self._lists) - 1)

    def _example(self, query: int, positive: int, score: float) -> None:
        """Add an example of the last query."""
        for name, value in (("query", query), ("positive", positive), ("group", len(self._systems) - 2)):
            self._numbers[name].append(value)
        self._scores["own"].append(score)


def _buffer(values: array[Any], kind: type[np.generic]) -> np.ndarray:
    return np.frombuffer(values, kind) if values else np.empty(0, kind)


class Negatives(NamedTuple):
    """Sampled negatives of m examples: texts int32 [m, n], scores float32 [m, n], and their number per example [m]."""

    texts: NDArray[np.int32]
    scores: NDArray[np.float32]
    counts: NDArray[np.int64]
    dropped: int


class Sampled:
    """The examples of a source in the passes of a run; examples with too few usable negatives are passed over."""

    def __init__(
        self,
        opened: Callable[[int], PreparedExamples],
        settings: DataSettings,
        number: int,
        seed: int,
        scored: bool,
    ) -> None:
        """Sample by `settings` from the examples of a pass that `opened` returns.

        `number` is the index of the source, `scored` adds the scores as the column `label`.

        Raises:
            DataError: an example has no scores or too few negatives, or no example is left.
        """
        self._opened, self._settings, self._number, self._seed, self._scored = opened, settings, number, seed, scored
        prepared = opened(0)
        self._check(prepared)
        first = self._sample(prepared, 0)
        self._kept = np.flatnonzero(first.counts == settings.negatives)
        passed_over = prepared.left_out + len(first.counts) - len(self._kept)
        if not len(self._kept):
            what = f"no example has {settings.negatives} usable negatives"
            raise DataError(what, source=prepared.source)
        if passed_over or first.dropped:
            message = "%s: %d negatives left out for their scores, %d of %d examples passed over"
            logger.warning(message, prepared.source, first.dropped, passed_over, len(self._kept) + passed_over)

    def examples(self, number: int, texts: IdTexts) -> Dataset:
        """Return the examples of a pass, in the order of the source."""
        return self._dataset([(number, self._kept)], texts)

    def drawn(self, rows: NDArray[np.int64], size: int, texts: IdTexts) -> Dataset:
        """Return `rows` of the examples, in passes of `size` rows; each pass has different negatives."""
        starts = range(0, len(rows), size)
        passes = [(number, self._kept[rows[start : start + size]]) for number, start in enumerate(starts)]
        return self._dataset(passes, texts)

    def _dataset(self, passes: Iterable[tuple[int, NDArray[np.int64]]], texts: IdTexts) -> Dataset:
        tables = []
        for number, rows in passes:
            prepared = self._opened(number)
            negatives, base = self._sample(prepared, number), texts.base(prepared)
            columns = {"query": prepared.query[rows], "positive": prepared.positive[rows]}
            columns |= {f"negative_{i}": column for i, column in enumerate(negatives.texts[rows].T, start=1)}
            table = pa.table({name: pa.array(values.astype(np.int64) + base) for name, values in columns.items()})
            if self._scored:
                scores = np.column_stack([prepared.own[rows], negatives.scores[rows]]).astype(np.float64)
                starts = np.arange(len(rows) + 1, dtype=np.int32) * scores.shape[1]
                table = table.append_column("label", pa.ListArray.from_arrays(starts, scores.ravel()))
            tables.append(table)
        return Dataset(pa.concat_tables(tables)).with_transform(texts)

    def _sample(self, prepared: PreparedExamples, number: int) -> Negatives:
        """Sample the negatives of all examples in a pass; take the first negatives unless sampling is random."""
        settings = self._settings
        m, n = len(prepared.query), settings.negatives
        texts, scores, counts = np.zeros((m, n), np.int32), np.zeros((m, n), np.float32), np.zeros(m, np.int64)
        margin = np.float32(np.nan if settings.false_negative_margin is None else settings.false_negative_margin)
        seed = int(np.random.SeedSequence((self._seed, self._number, number)).generate_state(1)[0])
        random = settings.sampling == "random"
        arrays = prepared.group, prepared.systems, prepared.lists, prepared.candidates, prepared.scores, prepared.own
        dropped = sample_negatives(arrays, margin, random, seed, texts, scores, counts)
        return Negatives(texts, scores, counts, dropped)

    def _check(self, prepared: PreparedExamples) -> None:
        """Raise `DataError` for examples without the needed scores or negatives."""
        needed = self._settings.negatives
        unscored = np.isnan(prepared.own)
        if self._scored and unscored.any():
            remedy = "name training.teacher, or score them first (vocable teacher-scores)"
            raise DataError(f"its examples have no scores to learn from: {remedy}", source=prepared.source)
        if prepared.ids:
            return
        sizes = np.diff(prepared.lists[prepared.systems])[prepared.group]
        for wrong, what in (
            (sizes < needed, f"an example has {{}} negatives, and data.negatives is {needed}"),
            (unscored & (self._settings.false_negative_margin is not None), "an example has no scores to compare"),
        ):
            if wrong.any():
                row = int(wrong.argmax())
                query = prepared.text(prepared.query[row])[:60]
                raise DataError(f"{what.format(sizes[row])}: {query!r}", source=prepared.source)


class IdTexts:
    """A transform of a data set: replaces numbers of texts with the texts; other columns stay."""

    def __init__(self, sources: Iterable[PreparedExamples] = ()) -> None:
        self._sources = list(sources)

    def base(self, source: PreparedExamples) -> int:
        """Return what is added to the numbers of a source, whose texts are found from then on."""
        if source not in self._sources:
            self._sources.append(source)
        return self._sources.index(source) << SOURCE_BITS

    def __call__(self, batch: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        return {name: values if name == "label" else [*map(self._text, values)] for name, values in batch.items()}

    def _text(self, number: int) -> str:
        return self._sources[number >> SOURCE_BITS].text(number & ((1 << SOURCE_BITS) - 1))

    def __deepcopy__(self, memo: object) -> Self:
        return self


def joined(parts: Sequence[Dataset], axis: int = 0) -> Dataset:
    """Join data sets one after the other, or side by side; the result has the transform of the first."""
    transform = parts[0].format["format_kwargs"].get("transform")
    dataset = concatenate_datasets([part.with_format(None) for part in parts], axis=axis)  # which may copy the rows
    return dataset if transform is None else dataset.with_transform(transform)


def sample_negatives(
    arrays: tuple[np.ndarray, ...],
    margin: np.float32,
    random: bool,
    seed: int,
    texts: np.ndarray,
    scores: np.ndarray,
    counts: np.ndarray,
) -> int:
    """Fill the empty `texts` and `scores` [m, n] with negatives, evenly from the systems, and `counts` [m].

    `arrays` are the arrays `group`, `systems`, `lists`, `candidates`, `scores` and `own` of `PreparedExamples`. Systems
    take turns, in the given order or in random order. In its turn a system gives its next candidate, or a random
    candidate, that is not taken yet and scores at most the positive's score minus the `margin` (NaN: any score).
    Returns the number of candidates that scored more.
    """
    group, _, _, _, _, positive_scores = arrays
    systems, lists, candidates, known = (array.data for array in arrays[1:5])  # whose items are Python's numbers
    draw, dropped = _draws(seed) if random else None, 0
    bounds = (positive_scores - margin).tolist()
    for m, query in enumerate(group.tolist()):
        # The systems that have candidates left, shuffled if the order is random (Fisher and Yates).
        live = [*range(systems[query], systems[query + 1])]
        if draw:
            for i in range(len(live) - 1, 0, -1):
                j = draw(i + 1)
                live[i], live[j] = live[j], live[i]
        at = {system: lists[system] for system in live}  # the next candidate of each system
        moved = dict[int, int]()
        taken = dict[int, float]()  # scores by text
        turn = 0
        while live and len(taken) < texts.shape[1]:
            system, end = live[turn], lists[live[turn] + 1]
            for position in range(at[system], end):
                candidate = position
                if draw:  # a step of a shuffle, of which `moved` has the candidates that are not in their places
                    j = position + draw(end - position)
                    candidate = moved.get(j, j)
                    moved[j] = moved.get(position, position)
                if known[candidate] > bounds[m]:  # never with NaN
                    dropped += 1
                elif candidates[candidate] not in taken:
                    taken[candidates[candidate]] = known[candidate]
                    at[system], turn = position + 1, turn + 1
                    break
            else:  # the system has no candidate left
                del live[turn]
            turn = turn % len(live) if live else 0
        texts[m, : len(taken)] = [*taken]
        scores[m, : len(taken)] = [*taken.values()]
        counts[m] = len(taken)
    return dropped


def _draws(seed: int) -> Callable[[int], int]:
    """Return a function that draws a number below another, as `RandomState.randint` does, but quickly."""
    generator = np.random.RandomState(seed)
    numbers = chain.from_iterable(generator.randint(0, 1 << 32, size, np.uint32).tolist() for size in repeat(4096))

    def draw(end: int) -> int:
        mask = (1 << (end - 1).bit_length()) - 1
        number = next(numbers) & mask if mask else 0
        while number >= end:
            number = next(numbers) & mask
        return number

    return draw
