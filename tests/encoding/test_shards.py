"""Shards of a corpus: equal to one encoding, whoever makes them, whatever interrupts them."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sentence_transformers import SparseEncoder

import vocable as vo
from tests import forks
from vocable.core.storage import locked, partial_of
from vocable.data import slices
from vocable.encoding import shards, stream
from vocable.encoding.models import encoding_model
from vocable.encoding.shards import in_turn, make_all
from vocable.encoding.text_encoder import TextEncoder
from vocable.encoding.vectors import read_vectors
from vocable.errors import ArgumentError, DataError, InUseError, MissingExtraError, VectorsError

PART = 4
PARTS = 6  # other processes have larger parts: they make the same vectors of shards of one part each


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PART_SIZE", PART)
    monkeypatch.setattr("vocable.encoding.encode.PART_SIZE", PART)


@pytest.fixture
def whole_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "WHOLE_PARTS", 1)


@pytest.fixture
def corpus(toy_texts: list[str], tmp_path: Path) -> Path:
    """22 documents in six parts, with empty lines between and none at the end."""
    texts = sorted(set(toy_texts))[:22]
    lines = [json.dumps({"_id": f"d{i}", "text": text}, ensure_ascii=False) for i, text in enumerate(texts)]
    lines.insert(5, "")
    path = tmp_path / "corpus.jsonl"
    path.write_text("\ufeff" + "\n".join(lines), encoding="utf-8")
    return path


def packed(corpus: Path) -> Path:
    path = corpus.with_suffix(".jsonl.gz")
    path.write_bytes(gzip.compress(corpus.read_bytes()))
    return path


def same(one: Path, other: Path) -> None:
    """Every bit of the vectors, and the ids in their order."""
    a, b = read_vectors(one), read_vectors(other)
    assert list(a.ids) == list(b.ids)
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(a.matrix, name), getattr(b.matrix, name))
    assert a.meta == b.meta


def test_a_small_corpus_has_no_empty_shards(toy_model: SparseEncoder, corpus: Path, tmp_path: Path) -> None:
    """A call in one piece reads its texts in other batches, which changes the last bits alone."""
    whole = vo.encode(toy_model, corpus, output=tmp_path / "whole")
    for number in range(1, 9):
        made = vo.encode(toy_model, corpus, output=tmp_path / "out", shards=8, shard=number)
        assert made.texts in (2, 3)
    one, other = read_vectors(tmp_path / "whole"), read_vectors(tmp_path / "out")
    assert list(one.ids) == list(other.ids)
    np.testing.assert_allclose(one.matrix.toarray(), other.matrix.toarray(), rtol=1e-4, atol=1e-5)
    assert vo.encode(toy_model, corpus, output=tmp_path / "out", shards=8).texts == whole.texts


@pytest.mark.usefixtures("whole_parts")
@pytest.mark.parametrize("form", [Path, packed])
def test_shards_of_whole_parts_are_one_encoding_bit_for_bit(
    toy_model: SparseEncoder, corpus: Path, tmp_path: Path, form: Callable[[Path], Path]
) -> None:
    source = form(corpus)
    whole = vo.encode(toy_model, source, output=tmp_path / "whole")
    for shard in (3, 1):
        made = vo.encode(toy_model, source, output=tmp_path / "out", shards=3, shard=shard)
        assert (made.texts, made.shards) == ({1: 8, 3: 6}[shard], 1)
    with pytest.raises(VectorsError, match=r"1 of 3 .*shard-00002"):
        read_vectors(tmp_path / "out")
    made = vo.encode(toy_model, source, output=tmp_path / "out", shards=3)
    assert made._replace(seconds=0) == whole._replace(seconds=0, shards=3)
    assert "22 texts in 3 shards" in str(made)
    same(tmp_path / "whole", tmp_path / "out")
    again = vo.encode(toy_model, source, output=tmp_path / "out", shards=3)
    assert again == made


def test_shards_are_indexed_and_pruned(toy_model: SparseEncoder, corpus: Path, tmp_path: Path) -> None:
    vo.encode(toy_model, corpus, output=tmp_path / "out", shards=3)
    ids = [f"d{i}" for i in range(22)]
    index = vo.index(tmp_path / "out", corpus, tmp_path / "index")
    np.testing.assert_array_equal(index.vectors(ids).toarray(), read_vectors(tmp_path / "out").matrix.toarray())
    assert index.settings.meta.fingerprint == encoding_model(toy_model).fingerprint()
    assert vo.prune(tmp_path / "out", max_terms=3, output=tmp_path / "small").postings == 66


def test_a_shard_of_another_corpus_is_noticed(toy_model: SparseEncoder, corpus: Path, tmp_path: Path) -> None:
    """The ids and the model are the same, and so are all files but the shard."""
    vo.encode(toy_model, corpus, output=tmp_path / "out", shards=3)
    other = tmp_path / "other.jsonl"
    other.write_text(corpus.read_text(encoding="utf-8").replace("the", "no"), encoding="utf-8")
    vo.encode(toy_model, other, output=tmp_path / "other", shards=3)
    shutil.rmtree(tmp_path / "out" / "shard-00002")
    shutil.copytree(tmp_path / "other" / "shard-00002", tmp_path / "out" / "shard-00002")
    with pytest.raises(VectorsError, match=r"shard-00002: .*inputs, source$"):
        read_vectors(tmp_path / "out")
    with pytest.raises(VectorsError):
        vo.index(tmp_path / "out", corpus, tmp_path / "index")
    shutil.rmtree(tmp_path / "out" / "shard-00002")
    shutil.copytree(tmp_path / "out" / "shard-00001", tmp_path / "out" / "shard-00002")
    with pytest.raises(VectorsError, match=r"shard-00002: .*inputs, shard$"):
        read_vectors(tmp_path / "out")
    assert len(read_vectors(tmp_path / "other").ids) == 22


def test_no_text_has_two_vectors(toy_model: SparseEncoder, corpus: Path, tmp_path: Path) -> None:
    vo.encode(toy_model, corpus, output=tmp_path / "out", shards=3)
    first, second = (tmp_path / "out" / f"shard-0000{number}" for number in (1, 2))
    for named in ([first, first], [tmp_path / "out", second], [first, tmp_path / "out" / "x" / ".." / "shard-00001"]):
        with pytest.raises(VectorsError):
            vo.analyze_postings(named)
    copy = shutil.copytree(first, tmp_path / "copy")
    for read in (read_vectors, vo.analyze_postings):
        with pytest.raises(VectorsError, match=r"part-00000\.parquet: .*'d0'"):
            read([first, second, copy])
    assert len(read_vectors([second, copy]).ids) == 14


def test_other_inputs_are_noticed(toy_model: SparseEncoder, corpus: Path, tmp_path: Path) -> None:
    encode = partial(vo.encode, toy_model, corpus, output=tmp_path / "out", shards=3)
    encode(shard=1)
    with pytest.raises(ArgumentError, match=r"out .*\(shards\)"):
        vo.encode(toy_model, corpus, output=tmp_path / "out", shards=2, shard=1)
    with pytest.raises(ArgumentError, match=r"\(max_terms\)"):
        encode(shard=2, max_terms=3)
    before = corpus.read_bytes()
    corpus.write_bytes(before + b'\n{"_id": "more", "text": "one more"}')
    for shard in (1, 2):
        with pytest.raises(ArgumentError, match=r"corpus\.jsonl .*out "):
            encode(shard=shard)
    corpus.write_bytes(before[:-3] + b'?"}')
    encode(shard=2)  # its own bytes are the same
    with pytest.raises(ArgumentError):
        encode(shard=3)
    corpus.write_bytes(before)
    next(toy_model.parameters()).data.view(-1)[0] += 1
    with pytest.raises(ArgumentError, match=r"\(fingerprint.weights\)"):
        encode(shard=3)


@pytest.mark.usefixtures("whole_parts")
def test_shards_read_long_texts_whole(toy_model: SparseEncoder, corpus: Path, tmp_path: Path) -> None:
    encode = partial(vo.encode, toy_model, corpus, long_documents="maxpool", max_length=6)
    whole, made = encode(output=tmp_path / "whole"), encode(output=tmp_path / "out", shards=3)
    assert (made.windows, made.truncated) == (whole.windows, 0)
    assert made.windows > 2 * 22
    same(tmp_path / "whole", tmp_path / "out")


@pytest.mark.usefixtures("whole_parts")
def test_one_shard_has_one_maker(
    toy_model: SparseEncoder, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vo.encode(toy_model, corpus, output=tmp_path / "out", shards=3, shard=1)
    encode = partial(vo.encode, toy_model, corpus, output=tmp_path / "out", shards=3)
    held, waited = locked(partial_of(tmp_path / "out" / "shard-00002")), []
    held.__enter__()
    with pytest.raises(InUseError, match=r"shard-00002\.partial .*\d+"):
        encode(shard=2)
    # All others are made; this one, too, when its maker has died and its lock is gone.
    monkeypatch.setattr(shards.time, "sleep", lambda _: waited.append(held.__exit__(None, None, None)))
    assert encode().texts == 22
    assert len(waited) == 1
    vo.encode(toy_model, corpus, output=tmp_path / "whole")
    same(tmp_path / "whole", tmp_path / "out")


def test_two_makers_of_one_shard_spoil_nothing_where_there_are_no_locks(
    toy_model: SparseEncoder, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vocable.core.locks.fcntl", None)
    one = partial(vo.encode, toy_model, corpus, output=tmp_path / "out", shards=1, shard=1)
    encode, calls = TextEncoder.encode_both, list[int]()

    def overtaken(self: TextEncoder, *given: Any, **named: Any) -> csr_array:
        calls.append(1)
        if len(calls) == 3:  # the other one makes all that is left
            one()
        return encode(self, *given, **named)

    monkeypatch.setattr(TextEncoder, "encode_both", overtaken)
    with pytest.raises(ArgumentError, match=r"shard-00001\.partial"):
        one()
    assert len(calls) == 3 + 4  # of six parts
    assert one().texts == 22
    vo.encode(toy_model, corpus, output=tmp_path / "whole")
    same(tmp_path / "whole", tmp_path / "out")


def test_planners_that_begin_at_once_agree(
    toy_model: SparseEncoder, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    barrier, plan = threading.Barrier(3), shards.cut
    monkeypatch.setattr(shards, "cut", lambda *given: (barrier.wait(300), plan(*given))[1])
    errors: list[Exception] = []

    def one(shard: int) -> None:
        try:
            vo.encode(toy_model, corpus, output=tmp_path / "out", shards=3, shard=shard)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(shard,)) for shard in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert read_vectors(tmp_path / "out").matrix.shape[0] == 22
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl", "out"]


def test_processes_that_die_are_replaced_a_few_times(caplog: pytest.LogCaptureFixture) -> None:
    runs: list[list[int]] = []

    def run(make: Callable[[int], int | None], numbers: list[int]) -> Iterator[tuple[int, int | None]]:
        runs.append(numbers)
        if len(runs) in (1, 3):
            yield next(in_turn(make, numbers))
        raise BrokenExecutor

    with pytest.raises(ArgumentError):
        list(make_all(lambda number: number, [1, 2, 3], run))
    assert runs == [[1, 2, 3], [2, 3], [2, 3], [3], [3]]
    assert "another one makes its shard" in caplog.text


@pytest.mark.slow
@pytest.mark.usefixtures("quick_workers")
def test_processes_make_the_same_shards(backbones: dict[str, Path], corpus: Path, tmp_path: Path) -> None:
    model = vo.load(backbones["bert"], device="cpu")
    given = {"dtype": "float32", "max_length": 9}
    vo.encode(model, corpus, output=tmp_path / "whole", shards=PARTS, **given)
    made = vo.encode(model, corpus, output=tmp_path / "out", shards=PARTS, workers=2, **given)
    assert (made.texts, made.shards) == (22, PARTS)
    same(tmp_path / "whole", tmp_path / "out")


@pytest.mark.parametrize(
    "given",
    [
        {"shard": 1},
        {"workers": 2},
        {"shards": 2, "shard": 3},
        {"shards": 0},
        {"shards": 10**9},
        {"shards": 2, "shard": 1, "workers": 2},
        {"shards": 2, "scheduler": "host:8786"},
    ],
)
def test_impossible_shards_are_refused(
    toy_model: SparseEncoder, corpus: Path, tmp_path: Path, given: dict[str, int]
) -> None:
    with pytest.raises(ArgumentError):
        vo.encode(toy_model, corpus, output=tmp_path / "out", **given)
    with pytest.raises(ArgumentError):
        vo.encode(toy_model, "-", output=tmp_path / "out", shards=2)


def test_dask_is_an_extra(
    toy_model: SparseEncoder, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'vocable\[dask\]'"):
        vo.encode(toy_model, corpus, output=tmp_path / "out", shards=2, scheduler="dask://host:8786")


@pytest.mark.slow
def test_a_killed_dask_worker_loses_nothing(backbones: dict[str, Path], corpus: Path, tmp_path: Path) -> None:
    distributed, dask = pytest.importorskip("distributed"), pytest.importorskip("dask")
    forks.context()
    model = vo.load(backbones["bert"], device="cpu")
    vo.encode(model, corpus, output=tmp_path / "whole", shards=PARTS, dtype="float32")
    killed: list[int] = []
    quick = dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    with quick, distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster:
        address = cluster.scheduler_address.replace("tcp://", "dask://")

        def kill() -> None:
            """One worker, as soon as it has a shard in work."""
            words: list[str] = []
            while len(words) < 2:  # a lock that was just made says nothing yet
                for lock in (tmp_path / "out").glob("shard-*.partial/.lock"):
                    with suppress(FileNotFoundError):  # that shard is whole by now
                        words = lock.read_text().split()
            killed.append(int(words[1]))
            os.kill(killed[0], 9)

        thread = threading.Thread(target=kill)
        thread.start()
        made = vo.encode(model, corpus, output=tmp_path / "out", shards=PARTS, dtype="float32", scheduler=address)
        thread.join()
    assert len(killed) == 1
    assert killed[0] != os.getpid()
    assert (made.texts, made.shards) == (22, PARTS)
    same(tmp_path / "whole", tmp_path / "out")


def test_a_bad_line_leaves_nothing_that_the_corrected_source_meets(toy_model: SparseEncoder, tmp_path: Path) -> None:
    lines = [json.dumps({"_id": f"d{number}", "text": "the old fox"}) + "\n" for number in range(9)]
    source, output = tmp_path / "texts.jsonl", tmp_path / "out"
    for bad in (0, 8):  # in the first shard, and in the last
        source.write_text("".join([*lines[:bad], '{"text": "no id"}\n', *lines[bad + 1 :]]), encoding="utf-8")
        with pytest.raises(DataError):
            vo.encode(toy_model, source, output=output, shards=3)
        assert [path.name for path in tmp_path.iterdir()] == ["texts.jsonl"]
    source.write_text("".join(lines), encoding="utf-8")
    assert vo.encode(toy_model, source, output=output, shards=3).texts == 9
