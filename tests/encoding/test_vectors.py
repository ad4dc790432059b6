from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import coo_array, csr_array, csr_matrix

from vocable.core.arrays import Strings
from vocable.encoding.pruning import prune, quantize
from vocable.encoding.vectors import (
    StoredRows,
    StoredVectors,
    VectorsMeta,
    as_vectors,
    read_shards,
    read_vectors,
    write_vectors,
)
from vocable.errors import ArgumentError, VectorsError

META = VectorsMeta(vocabulary="abc123", model="toy", pooling="max", role="document", max_length=128, size=6)
DENSE = np.array([[0, 1.5, 0, 0.25, 0, 3], [0, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0.5, 0]], dtype=np.float32)
IDS = ["a", "ü b", "c"]

# Few distinct weights, so that ties are common.
dense_matrices = arrays(
    np.float32, st.tuples(st.integers(0, 5), st.integers(1, 8)), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0])
)


def shard(path: Path, rows: slice, meta: VectorsMeta = META) -> None:
    write_vectors(path, IDS[rows], csr_array(DENSE[rows]), meta)


def write_table(path: Path, ids: list[str], indices: list[list[int]], values: list[list[float]], meta: str) -> None:
    """A file as another program might write it."""
    columns = {
        "id": pa.array(ids),
        "indices": pa.array(indices, pa.list_(pa.int32())),
        "values": pa.array(values, pa.list_(pa.float32())),
    }
    schema = pq.read_schema(path).with_metadata({"vocable": meta})
    pq.write_table(pa.table(columns).cast(schema), path)


def test_vectors_are_read_as_they_were_written(tmp_path: Path) -> None:
    shard(tmp_path / "v.parquet", slice(None))
    stored = read_vectors(tmp_path / "v.parquet")
    assert stored.ids == IDS
    assert stored.meta == META
    assert stored.matrix.toarray().tolist() == DENSE.tolist()
    assert stored.matrix.indices.dtype == np.int32
    assert stored.matrix.data.dtype == np.float32
    assert [path.name for path in tmp_path.iterdir()] == ["v.parquet"]


def test_no_flipped_bit_of_a_footer_makes_other_vectors(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    shard(path, slice(None))
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    noticed = 0
    for place in range(len(content) - 8 - length, len(content) - 8):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        try:
            found = read_vectors(path)
        except VectorsError:
            noticed += 1
        else:
            assert (found.ids, found.meta, found.matrix.toarray().tolist()) == (IDS, META, DENSE.tolist())
    assert noticed > length / 2


@pytest.mark.parametrize("change", [{"size": 7}, {"crc32": 0}, {"crc32": None}])
def test_a_wrong_checksum_is_refused(tmp_path: Path, change: dict[str, int | None]) -> None:
    path = tmp_path / "v.parquet"
    shard(path, slice(None))
    meta = json.loads(pq.read_schema(path).metadata[b"vocable"]) | change
    pq.write_table(pq.read_table(path).replace_schema_metadata({"vocable": json.dumps(meta)}), path)
    with pytest.raises(VectorsError, match=r"v\.parquet"):
        read_vectors(path)


@pytest.mark.parametrize("rows", [slice(0, 0), slice(1, 2)])
def test_a_matrix_without_weights_is_stored(tmp_path: Path, rows: slice) -> None:
    shard(tmp_path / "v.parquet", rows)
    stored = read_vectors(tmp_path / "v.parquet")
    assert stored.matrix.shape == (len(DENSE[rows]), 6)
    assert stored.matrix.nnz == 0


@given(dense_matrices)
def test_any_matrix_comes_back(tmp_path_factory: pytest.TempPathFactory, dense: np.ndarray) -> None:
    path = tmp_path_factory.mktemp("any") / "v.parquet"
    ids = [str(row) for row in range(len(dense))]
    write_vectors(path, ids, csr_array(dense), VectorsMeta("v", "m", "sum", "query", 32, dense.shape[1]))
    stored = read_vectors(path)
    assert stored.ids == ids
    np.testing.assert_array_equal(stored.matrix.toarray(), dense)


def test_reading_makes_no_copy_of_the_weights(tmp_path: Path) -> None:
    shard(tmp_path / "v.parquet", slice(None))
    matrix = read_vectors(tmp_path / "v.parquet").matrix
    assert not matrix.data.flags.owndata  # views of Arrow's memory
    assert not matrix.data.flags.writeable
    assert np.shares_memory(as_vectors(matrix).data, matrix.data)


def test_shards_are_read_in_order(tmp_path: Path) -> None:
    shard(tmp_path / "part-00001.parquet", slice(1, 3))
    shard(tmp_path / "part-00000.parquet", slice(0, 1))
    stored = read_vectors(tmp_path)
    assert stored.ids == IDS
    np.testing.assert_array_equal(stored.matrix.toarray(), DENSE)
    assert stored.matrix.indices.dtype == np.int32


def test_shards_of_two_models_are_refused(tmp_path: Path) -> None:
    shard(tmp_path / "part-00000.parquet", slice(0, 1))
    other = VectorsMeta("abc123", "another", "max", "document", 128, 6)
    shard(tmp_path / "part-00001.parquet", slice(1, 3), other)
    with pytest.raises(
        VectorsError,
        match=r"part-00001\.parquet: .*part-00000\.parquet: model",
    ):
        read_vectors(tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(VectorsError, match=r"none\.parquet"):
        read_vectors(tmp_path / "none.parquet")
    with pytest.raises(VectorsError):
        read_vectors(tmp_path)


def test_a_file_cut_short_at_any_point_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    shard(path, slice(None))
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(VectorsError, match=r"v\.parquet"):
            read_vectors(path)


def test_a_changed_byte_is_refused_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    shard(path, slice(None))
    whole = path.read_bytes()
    for position in range(0, len(whole), 2):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        try:
            stored = read_vectors(path)
        except VectorsError:
            continue
        np.testing.assert_array_equal(stored.matrix.toarray(), DENSE)  # a byte that means nothing


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    shard(path, slice(None))
    before = path.read_bytes()
    with pytest.raises(ArgumentError):
        write_vectors(path, ["a", 7, "c"], csr_array(DENSE), META)  # type: ignore[list-item]
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["v.parquet"]


def test_ids_and_size_must_fit(tmp_path: Path) -> None:
    with pytest.raises(VectorsError):
        write_vectors(tmp_path / "v.parquet", ["a", "b"], csr_array(DENSE), META)
    with pytest.raises(VectorsError):
        write_vectors(tmp_path / "v.parquet", IDS, csr_array(DENSE[:, :5]), META)


GOOD = (
    '{"format": 1, "vocabulary": "v", "model": "m", "pooling": "max", "role": "query", "max_length": 8, "size": 6, '
    '"runtime": "torch", "fingerprint": {}}'
)


@pytest.mark.parametrize(
    ("indices", "values", "meta", "message"),
    [
        ([[1, 6]], [[1.0, 1.0]], GOOD, "outside the vocabulary of 6"),
        ([[-1, 2]], [[1.0, 1.0]], GOOD, "outside the vocabulary of 6"),
        ([[3, 2]], [[1.0, 1.0]], GOOD, "not in order"),
        ([[2, 2]], [[1.0, 1.0]], GOOD, "not in order"),
        ([[2, 3]], [[1.0, 0.0]], GOOD, "not a positive number"),
        ([[2, 3]], [[1.0, float("nan")]], GOOD, "not a positive number"),
        ([[2, 3]], [[1.0]], GOOD, "numbers of indices and values"),
        ([[2]], [[1.0]], GOOD.replace("1,", "9,", 1), "stored in format 9"),
        ([[2]], [[1.0]], GOOD.replace('"m"', "5"), "another version"),
        ([[2]], [[1.0]], "{", "its metadata is damaged"),
    ],
)
def test_contents_that_are_not_vectors_are_refused(
    tmp_path: Path, indices: list[list[int]], values: list[list[float]], meta: str, message: str
) -> None:
    path = tmp_path / "v.parquet"
    shard(path, slice(0, 1))
    write_table(path, ["a"], indices, values, meta)
    with pytest.raises(VectorsError, match=rf"v\.parquet: .*{message}"):
        read_vectors(path)


def test_another_parquet_file_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(VectorsError):
        read_vectors(tmp_path / "x.parquet")


def test_other_sparse_forms_become_vectors() -> None:
    pairs = coo_array((np.array([1.0, 2.0, 4.0]), (np.array([0, 0, 0]), np.array([3, 1, 3]))), shape=(1, 5))
    result = as_vectors(pairs)
    assert result.toarray().tolist() == [[0, 2, 0, 5, 0]]
    assert (result.dtype, result.indices.dtype) == (np.float32, np.int32)
    unsorted = csr_array((np.array([1.0, 0.0, 2.0]), np.array([4, 2, 0]), np.array([0, 3])), shape=(1, 5))
    result = as_vectors(unsorted)
    assert (result.indices.tolist(), result.data.tolist()) == ([0, 4], [2, 1])
    assert unsorted.indices.tolist() == [4, 2, 0]  # the caller's matrix stays as it was
    assert isinstance(as_vectors(csr_matrix(DENSE)), csr_array)


@pytest.mark.parametrize("weight", [-1.0, np.inf, np.nan])
def test_weights_that_are_not_weights_are_refused(weight: float) -> None:
    with pytest.raises(VectorsError):
        as_vectors(csr_array(np.array([[1.0, weight]])), "the queries")


def test_a_dense_array_is_refused() -> None:
    with pytest.raises(VectorsError):
        as_vectors(DENSE)


def test_quantize_to_bits() -> None:
    result = quantize(csr_array(DENSE), bits=8)
    assert result.dtype == np.uint8
    # 255 / 3 = 85 a unit: 1.5 -> 127.5, half-way, to the even 128; 0.25 -> 21.25; 0.5 -> 42.5 to 42.
    assert result.toarray().tolist() == [[0, 128, 0, 21, 0, 255], [0] * 6, [170, 0, 0, 0, 42, 0]]
    assert quantize(csr_array(DENSE), bits=16).data.max() == 65535
    assert quantize(csr_array(DENSE), bits=9).dtype == np.uint16


def test_quantize_by_a_scale_drops_what_rounds_to_zero() -> None:
    result = quantize(csr_array(DENSE), scale=1.9)
    assert result.dtype == np.int32
    assert result.toarray().tolist() == [[0, 3, 0, 0, 0, 6], [0] * 6, [4, 0, 0, 0, 1, 0]]
    assert result.nnz == 4
    assert quantize(csr_array((2, 6), dtype=np.float32), bits=8).nnz == 0


@pytest.mark.parametrize(
    "arguments",
    [{}, {"bits": 8, "scale": 2.0}, {"bits": 0}, {"bits": 17}, {"scale": 0.0}, {"scale": float("nan")}, {"scale": 1e9}],
)
def test_quantize_refuses_senseless_arguments(arguments: dict[str, float]) -> None:
    with pytest.raises(ArgumentError):
        quantize(csr_array(DENSE), **arguments)  # type: ignore[arg-type]


def test_ids_are_a_sequence() -> None:
    ids = Strings(iter(["b", "a", "é"]))
    assert [len(ids), ids[2], ids[-1], list(ids), ids.index("a"), "z" in ids] == [
        3,
        "é",
        "é",
        ["b", "a", "é"],
        1,
        False,
    ]
    assert ids[1:] == Strings(["a", "é"])
    assert hash(ids[1:]) == hash(("a", "é"))
    assert Strings(["a", "b", "é"]).rows(["é", "none", "b", "é"]).tolist() == [2, -1, 1, 2]
    assert ids.rows([]).tolist() == []
    assert ids == ["b", "a", "é"]
    assert ids != ["b", "a"]
    with pytest.raises(IndexError):
        ids[3]


def test_stored_vectors_unpack() -> None:
    ids, matrix, meta, dense = StoredVectors(Strings(IDS), csr_array(DENSE), META)
    assert (len(ids), matrix.shape[1], dense) == (3, meta.size, None)


def test_columns_are_encoded_as_they_are_meant_to_be(tmp_path: Path) -> None:
    shard(tmp_path / "v.parquet", slice(None))
    columns = pq.read_metadata(tmp_path / "v.parquet").row_group(0)
    found = {columns.column(i).path_in_schema: columns.column(i) for i in range(columns.num_columns)}
    assert set(found) == {"id", "indices.list.element", "values.list.element"}
    assert "DELTA_BINARY_PACKED" in found["indices.list.element"].encodings
    assert "BYTE_STREAM_SPLIT" in found["values.list.element"].encodings
    assert not any("DICTIONARY" in encoding for column in found.values() for encoding in column.encodings)


def test_a_page_with_a_changed_byte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    dense = np.random.default_rng(0).random((300, 6), dtype=np.float32) + 1
    write_vectors(path, list(map(str, range(300))), csr_array(dense), META)
    [values] = [pq.read_metadata(path).row_group(0).column(2)]
    content = bytearray(path.read_bytes())
    content[values.data_page_offset + values.total_compressed_size - 9] ^= 1
    path.write_bytes(content)
    with pytest.raises(VectorsError, match=r"v\.parquet: .*(CRC|checksum)"):
        read_vectors(path)


def test_parts_that_are_missing_are_noticed(tmp_path: Path) -> None:
    for number in range(2):
        shard(tmp_path / f"part-0000{number}.parquet", slice(number, number + 1))
    (tmp_path / "progress.json").write_text('{"parts": 2}')
    assert len(read_vectors(tmp_path).ids) == 2
    (tmp_path / "part-00001.parquet").unlink()
    with pytest.raises(VectorsError, match=r"1 .* progress\.json .*2"):
        read_vectors(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "part-00000.parquet")
    with pytest.raises(VectorsError, match=r"part-00000\.parquet"):
        read_vectors(tmp_path)


def test_weights_that_one_file_cannot_count_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = SimpleNamespace(shape=(3, 6), nnz=2**31)
    monkeypatch.setattr("vocable.encoding.vectors.as_vectors", lambda matrix: large)
    with pytest.raises(VectorsError, match=r"v\.parquet: 2,147,483,648 "):
        shard(tmp_path / "v.parquet", slice(None))


@given(st.integers(0, 5), st.integers(1, 5), st.data())
def test_dense_vectors_are_read_as_written(count: int, d: int, data: st.DataObject) -> None:
    vectors = data.draw(arrays(np.float32, (count, d), elements=st.floats(-1, 1, width=32)))
    sparse, ids = csr_array((count, 6), dtype=np.float32), [str(number) for number in range(count)]
    with TemporaryDirectory() as folder:
        path = Path(folder, "v.parquet")
        write_vectors(path, ids, sparse, META, vectors)
        stored = read_vectors(path)
        assert stored.dense is not None
        assert stored.dense.tolist() == vectors.tolist()
        order = data.draw(st.permutations(range(count)))
        rows = StoredRows(read_shards(path))
        if count:
            taken = rows.take([ids[row] for row in order])
            assert taken is not None
            assert taken.dense is not None
            assert (list(taken.ids), taken.dense.tolist()) == ([ids[row] for row in order], vectors[order].tolist())


def test_dense_vectors_are_checked(tmp_path: Path) -> None:
    path, dense = tmp_path / "part-00000.parquet", np.eye(3, 4, dtype=np.float32)
    write_vectors(path, IDS, csr_array(DENSE), META, dense)
    write_vectors(tmp_path / "part-00001.parquet", ["d"], csr_array(DENSE[:1]), META)
    with pytest.raises(VectorsError):
        read_vectors(tmp_path)
    with pytest.raises(VectorsError):
        write_vectors(path, IDS, csr_array(DENSE), META, dense[:2])
    table = pq.read_table(path)
    other = table.set_column(3, table.schema.field("dense"), [table["dense"].combine_chunks()[::-1]])
    pq.write_table(other, path)
    with pytest.raises(VectorsError):
        read_vectors(path)
    pq.write_table(table.set_column(3, "dense", table["indices"]), path)
    with pytest.raises(VectorsError):
        read_vectors(path)


def test_pruning_leaves_dense_vectors(tmp_path: Path) -> None:
    path, dense = tmp_path / "v.parquet", np.eye(3, 4, dtype=np.float32)
    write_vectors(path, IDS, csr_array(DENSE), META, dense)
    prune(path, 1, output=tmp_path / "pruned")
    stored = read_vectors(tmp_path / "pruned")
    assert (stored.matrix.nnz, stored.dense.tolist()) == (2, dense.tolist())  # type: ignore[union-attr]
