"""The verb `encode`: texts to vectors, in memory or into files, or into shards made by several processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Unpack, cast

from annotated_types import Ge, Le
from scipy.sparse import csr_array

from vocable.core.storage import ANOTHER
from vocable.core.tables import counted
from vocable.data import BadLines, Document, Query, read_corpus, read_queries
from vocable.data.kinds import DOCUMENT, QUERY, Kind
from vocable.data.slices import Span, absolute, has_changed, read_span
from vocable.data.texts import Texts
from vocable.encoding.hub import check_length
from vocable.encoding.load import load_encoder
from vocable.encoding.models import Model, model_name
from vocable.encoding.protocol import EncodingModel, Role
from vocable.encoding.shards import Make, MakeAll, in_processes, in_turn, make_all, on_dask, planned
from vocable.encoding.stream import PART_SIZE, StreamProgress, encode_stream, stream_settings
from vocable.encoding.text_encoder import TextEncoder, describe, warn_of_cut, warn_of_unknown
from vocable.encoding.vectors import shard_folder
from vocable.errors import ArgumentError, InUseError, require_extra
from vocable.options import Count, CountOrZero, Encoding, Runtime, checked

ShardCount = Annotated[int, Ge(1), Le(10_000)]


class EncodedCorpus(NamedTuple):
    """Counts of `vocable.encode` with an output, and of `vocable.index`.

    `truncated` texts were longer than `max_length` tokens (None: the model has no limit). `empty` texts have no active
    term, and `unknown` texts have more than half of their tokens outside the vocabulary. `first_bad` is the first of
    the `bad_lines` that this run skipped. `copies` have the same title and text as an earlier section of a folder, so
    that a search shows them as one hit. `repeated` lines repeat an earlier line and were skipped, too. `windows`
    counts the windows of texts that were read whole. `dense_truncated` texts were longer than the `dense_length` tokens
    that the dense model beside reads.
    """

    texts: int
    seconds: float
    truncated: int
    empty: int
    max_length: int | None
    bad_lines: int
    first_bad: str
    shards: int = 1
    windows: int = 0
    repeated: int = 0
    unknown: int = 0
    copies: int = 0
    dense_truncated: int = 0
    dense_length: int | None = None
    of_run: int | None = None  # texts of the last run, whose seconds are counted; None for all

    @classmethod
    def of(cls, done: StreamProgress, encoder: TextEncoder, bad: BadLines) -> EncodedCorpus:
        """Return the counts of `encode_stream`."""
        counts = done.texts, done.seconds, done.truncated, done.empty
        seen = {"windows": done.windows, "repeated": bad.repeated, "unknown": done.unknown}
        return cls(*counts, encoder.max_length, bad.count, bad.first or "", **seen)

    @property
    def texts_per_second(self) -> float:
        """Texts encoded and written per second."""
        return (self.texts if self.of_run is None else self.of_run) / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, object]:
        names: tuple[str, ...] = ("texts", "seconds", "texts_per_second", "truncated", "empty", "bad_lines")
        others = "windows", "repeated", "unknown", "copies", "dense_truncated"
        names += tuple(name for name in others if getattr(self, name))
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        speed = f", {self.texts_per_second:,.0f} texts/s" if self.seconds else ""  # stored vectors have no speed
        lines = [counted(self.texts, "text") + speed]
        if self.shards > 1:
            lines = [f"{counted(self.texts, 'text')} in {self.shards} shards{speed}{' a process' if speed else ''}"]
        counts = (
            (self.windows * (self.windows > self.texts), "window", f"of at most {self.max_length} tokens"),
            (self.truncated, "text", f"cut at {self.max_length} tokens"),
            (self.dense_truncated, "text", f"cut at {self.dense_length} tokens for the dense vectors"),
            (self.empty, "text", "without an active term"),
            (self.unknown, "text", "mostly unknown to the vocabulary"),
            (self.bad_lines, "bad line", f"skipped, the first: {self.first_bad}"),
            (self.repeated, "repeated line", "passed over"),
            (self.copies, "text", "the same as another: in a search they are one hit"),
        )
        return "\n".join([*lines, *(f"{counted(count, noun)} {rest}" for count, noun, rest in counts if count)])


@checked
def encode(
    model: Model | str | Path,
    texts: Texts | str | Path,
    role: Role = "document",
    *,
    output: str | Path | None = None,
    shards: ShardCount | None = None,
    shard: Count | None = None,
    workers: Count = 1,
    scheduler: str | None = None,
    no_dense: bool = False,
    skip_bad: CountOrZero = 0,
    name: str | None = None,
    **options: Unpack[Encoding],
) -> csr_array | EncodedCorpus:
    """Encode texts into sparse vectors.

    With `output`, into Parquet files; an interrupted run resumes when repeated.

    Args:
        model: vocable-mini, a folder, or a Hub id; in Python also a model from `vocable.load`, or a stock
            `SparseEncoder`, which is slower.
        texts: source of the documents, or of the queries for that role: a file, a folder, beir:DIR, hf:NAME, pydocs: or
            - (stdin); in Python b texts without `output`. A text without a word in the vocabulary has no terms.
        role: encode as queries or as documents: chooses the model's prompt, `Router` route and length.
        output: output folder (written atomically). An output that the same call has made is left unchanged.
        shards: cut the corpus into this many shards, folders in the output, which any number of processes make, on all
            machines that see the output: by the same call, or with `shard`, `workers` or `scheduler`.
        shard: encode only this shard, counted from 1.
        workers: processes on this machine that encode shards; each loads the model by its name.
        scheduler: address of a Dask scheduler whose workers encode the shards, such as dask://host:8786.
        no_dense: leave out the dense vectors of a model that gives them in the same pass.
        skip_bad: number of malformed lines to skip; one more is an error.
        name: with `output`, the model's name in the stored metadata; by default the place it was loaded from.
        options: of `Encoding`. By default, a text has the number of terms that the model's configuration sets for the
            role under `active_terms`, or its `max_active_dims`. Truncated texts are counted in a warning, or in the
            result. `device` and `runtime` need a model by its name.

    Returns:
        [b, v] csr_array of float32 weights > 0, indices sorted; with `output`, the counts of texts.

    Raises:
        ArgumentError: an argument is out of its range, or the output was made with other arguments.
        DataError: a source cannot be read, or has more bad lines than tolerated.
        MissingExtraError: `output` is given, and pyarrow is not installed.
        VectorsError: the unfinished output was made from other texts, or is damaged.
    """
    # Refuse what would fail after the work.
    check_shards(texts, shards, shard, workers, scheduler)
    bad, records = BadLines(skip_bad), None
    if output is not None:
        if not isinstance(texts, str | Path):
            raise ArgumentError("with output, texts is the source of the texts, such as a file")
        require_extra("pyarrow", "parquet")  # before the work
        records = read_corpus(texts, bad=bad) if role == "document" else read_queries(texts, bad=bad)
    named = name or model_name(model)
    check_length(model, options["max_length"])
    loaded = load_encoder(model, options["device"], options["runtime"], options["dtype"])
    encoder = TextEncoder(loaded, role, **options)
    # To memory.
    if output is None or records is None:
        vectors = encoder.encode(cast(Texts, texts))
        warn_of_cut(encoder.truncated, vectors.shape[0], "texts", encoder.max_length)
        warn_of_unknown(encoder.unknown, encoder.windows_read or vectors.shape[0])
        return vectors
    # To files, as one stream or as one of several shards.
    if shards is None:
        stream, source = _as_documents(records), str(texts)
        done = encode_stream(encoder, stream, output, model=named, source=source, dense=not no_dense)
        return EncodedCorpus.of(done, encoder, bad)
    sharded = _Sharded.planned(encoder, str(texts), output, named, shards, bad, dense=not no_dense)
    if shard is not None:
        return sharded.encode(encoder, shard, bad)
    # All shards: in this process, in others of this machine, or by Dask. Other processes load the model by its name.
    in_this_process = workers == 1 and scheduler is None
    given = {**options, "texts": sharded.source, "role": role, "output": sharded.folder, "shards": shards}
    given |= {"name": named, "no_dense": no_dense, "skip_bad": skip_bad, "device": None, "runtime": None}
    given["dtype"] = encoder.model.dtype if loaded.runtime == "torch" else "auto"
    by_name = _Loading(named, None if scheduler else loaded.device, loaded.runtime)
    make = partial(_make_shard, loaded if in_this_process else by_name, given)
    if in_this_process:
        return sharded.encode_all(make, in_turn)
    if scheduler:
        return sharded.encode_all(make, partial(on_dask, address=scheduler))
    return sharded.encode_all(make, partial(in_processes, workers=workers))


def check_shards(
    texts: object, shards: int | None, shard: int | None = None, workers: int = 1, scheduler: str | None = None
) -> None:
    """Raise `ArgumentError` if the arguments of `encode` about shards contradict each other."""
    if shards is None and (shard, workers, scheduler) != (None, 1, None):
        raise ArgumentError("`shard`, `workers` and `scheduler` need the number of `shards`")
    if (shard is not None) + (workers > 1) + (scheduler is not None) > 1:
        raise ArgumentError("give only one of `shard`, `workers` and `scheduler`")
    if shards and shard and shard > shards:
        raise ArgumentError(f"shard must be from 1 to {shards}, not {shard}")
    if shards and texts == "-":
        raise ArgumentError("shards need a corpus that can be read again: name a file, not standard input")


class _Sharded(NamedTuple):
    """A folder of shards, with the source, the span of each shard and the name of the model."""

    folder: Path
    source: str
    kind: Kind[Document] | Kind[Query]
    spans: list[Span]
    model: str
    dense: bool

    @classmethod
    def planned(
        cls,
        encoder: TextEncoder,
        texts: str,
        output: str | Path,
        model: str,
        shards: int,
        bad: BadLines,
        *,
        dense: bool,
    ) -> _Sharded:
        """Read the plan of a folder of shards, or make it."""
        folder, source = Path(output).resolve(), absolute(texts)
        kind: Kind[Document] | Kind[Query] = DOCUMENT if encoder.role == "document" else QUERY
        meta = describe(encoder, model)
        settings = stream_settings(encoder, meta, source, inputs="", dense=dense) | {"shards": shards}
        return cls(folder, source, kind, planned(folder, settings, kind, PART_SIZE, bad), model, dense)

    def encode(self, encoder: TextEncoder, shard: int, bad: BadLines) -> EncodedCorpus:
        """Make one shard."""
        if has_changed(self.source, self.kind, self.spans, shard - 1):
            raise ArgumentError(f"{self.source} has changed since {self.folder} was begun: {ANOTHER}")
        span, part = self.spans[shard - 1], (shard, len(self.spans))
        done = encode_stream(
            encoder,
            _as_documents(read_span(self.source, self.kind, span, bad)),
            shard_folder(self.folder, shard),
            model=self.model,
            source=self.source,
            inputs=span.digest,
            shard=part,
            title="shard {} of {}".format(*part),
            total=span.size,
            dense=self.dense,
        )
        return EncodedCorpus.of(done, encoder, bad)

    def encode_all(self, make: Make[EncodedCorpus], run: MakeAll[EncodedCorpus]) -> EncodedCorpus:
        """Make all shards, and add up their counts."""
        results = list(make_all(make, range(1, len(self.spans) + 1), run))
        names = ("texts", "seconds", "truncated", "empty", "bad_lines", "windows", "repeated", "unknown")
        counts = {name: sum(getattr(shard, name) for shard in results) for name in names}
        first = next((shard.first_bad for shard in results if shard.first_bad), "")
        return results[0]._replace(**counts, first_bad=first, shards=len(results))


class _Loading(NamedTuple):
    """The model of a process that makes shards: its name, device and runtime."""

    name: str
    device: str | None
    runtime: Runtime


_loaded = lru_cache(maxsize=1)(load_encoder)


def _make_shard(model: EncodingModel | _Loading, given: dict[str, Any], shard: int) -> EncodedCorpus | None:
    """Make a shard with a model or its name; return None while another process makes the shard."""
    loaded = _loaded(*model) if isinstance(model, _Loading) else model
    try:
        return cast(EncodedCorpus, encode(loaded, shard=shard, **given))
    except InUseError:
        return None


def _as_documents(records: Iterable[Document | Query]) -> Iterator[Document]:
    """Turn queries into documents without a title."""
    return (record if isinstance(record, Document) else Document(record.id, record.text) for record in records)
