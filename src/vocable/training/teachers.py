"""Teachers: models that score pairs of texts, and the scores or vectors that a training learns from.

Each distinct text of the examples is embedded or encoded once, before the training.

Letters: p pairs, t distinct texts, m examples, b examples in a batch, c negatives of an example, n = b (1 + c)
documents, v terms.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from datasets import Dataset
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.util import load_file_path
from torch import Tensor, nn

from vocable.core.arrays import load_arrays, save_arrays
from vocable.core.progress import progress
from vocable.core.steps import made_once
from vocable.data import Document
from vocable.encoding.graph import GraphModel
from vocable.encoding.hub import locate
from vocable.encoding.idf import idf
from vocable.encoding.load import load
from vocable.encoding.model_fingerprint import number_type, refuse_differences
from vocable.encoding.models import encoding_model
from vocable.encoding.protocol import Role
from vocable.encoding.stream import encode_stream
from vocable.encoding.terms import terms
from vocable.encoding.text_encoder import TextEncoder
from vocable.encoding.vectors import read_vectors, vocabulary_fingerprint
from vocable.errors import ModelError
from vocable.indexes.bm25 import BM25Index
from vocable.objectives.losses import ensemble
from vocable.options import DType
from vocable.torch_models.cpu import in_bfloat16
from vocable.torch_models.opening import SAVED_AS, model_kind, open_model
from vocable.training.recipe import TeacherSettings

T = TypeVar("T")
TEACHER_VECTORS = "vectors of a sparse teacher"
EMBEDDED_TOGETHER = 1024  # number of texts; an interruption loses at most this number
TeacherKind = Literal["cross", "dense", "sparse"]

TeacherModel: TypeAlias = CrossEncoder | SentenceTransformer | SparseEncoder
Scorer: TypeAlias = Callable[[Sequence[str], Sequence[str]], NDArray[np.float32]]
# Rows of b examples -> the scores of every query with every document [b, n], column by column, positives first; or the
# scores with the example's own documents [b, 1 + c]; or the vectors of all texts.
Teacher: TypeAlias = Callable[[NDArray[np.int64]], Tensor]


def make_scorer(model: TeacherModel) -> Scorer:
    """Return a function that scores p queries, each with its text: [p].

    The scores of a cross-encoder are its logits, because an activation such as the sigmoid would flatten the margins. A
    bi-encoder encodes each text once per call.
    """
    if isinstance(model, CrossEncoder):
        if model.num_labels != 1:
            raise ModelError(f"a cross-encoder with {model.num_labels} labels gives a pair no single score")
        predict = partial(model.predict, activation_fn=nn.Identity(), show_progress_bar=False)
        return lambda queries, texts: predict(list(zip(queries, texts, strict=True)))
    # Two encoders, which may be one.
    if isinstance(model, SparseEncoder):
        encoders: list[Any] = [TextEncoder(model, "query").encode, TextEncoder(model, "document").encode]
    else:
        options = {"show_progress_bar": False, "convert_to_tensor": True}
        encoders = [partial(model.encode_query, **options), partial(model.encode_document, **options)]

    def score(queries: Sequence[str], texts: Sequence[str]) -> NDArray[np.float32]:
        sides = []
        for encode, side in zip(encoders, (queries, texts), strict=True):
            # Encode distinct texts [u], then repeat them [p].
            rows = {text: i for i, text in enumerate(dict.fromkeys(side))}
            sides.append(encode(list(rows))[[rows[text] for text in side]])
        if isinstance(model, SparseEncoder):
            return np.asarray(sides[0].multiply(sides[1]).sum(axis=1))
        return np.asarray(model.similarity_pairwise(*sides).float().cpu())

    return score


def load_scoring_model(name: str | Path, kind: TeacherKind | None = None, device: str | None = None) -> TeacherModel:
    """Load a model that can score pairs; `name` and `device` as for `vocable.load`. Its files tell a missing `kind`."""
    known = kind or model_kind(name)
    if known == "sparse":
        return load(name, device=device)
    if known not in ("cross", "dense"):
        raise ModelError(f"{name}: its configuration has {known}: `kind` must be cross, dense or sparse")
    return open_model(name, CrossEncoder if known == "cross" else SentenceTransformer, device)


def lexical_teacher(examples: Dataset) -> Teacher:
    """Return a teacher that scores with BM25 over the documents of all examples."""
    query, *columns = examples.column_names
    index = BM25Index([text for column in columns for text in examples[column]])
    documents, queries = index.get(), index.query_vectors(examples[query][:])

    def scores(rows: NDArray[np.int64]) -> Tensor:
        numbers = np.concatenate([rows + start for start in range(0, documents.shape[0], len(examples))])
        return torch.from_numpy((queries[rows] @ documents[numbers].T).toarray())

    return scores


def own_scores(examples: Dataset) -> Teacher:
    """Return the examples' own scores as a teacher: the column `label`, with 1 + c scores of positive and negatives."""
    labels = examples.select_columns("label")
    return lambda rows: torch.tensor(labels[rows.tolist()]["label"], dtype=torch.float32)


class Embeddings(NamedTuple):
    """The `vectors` [t, d] of the t distinct texts of examples, and the `rows` [m, 2 + c] of each example's texts."""

    vectors: NDArray[np.float16]
    rows: NDArray[np.int64]

    def cosines(self, examples: NDArray[np.int64]) -> Tensor:
        """Return the cosine of every query with every document of a batch [b, n]."""
        batch = torch.from_numpy(self.vectors[self.rows[examples]].astype(np.float32))
        return batch[:, 0] @ batch[:, 1:].transpose(0, 1).flatten(0, 1).T


def distinct_texts(examples: Dataset, columns: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the distinct texts of these columns, in order, and the rows of each example's texts."""
    known: dict[str, int] = {}
    rows = [[known.setdefault(text, len(known)) for text in examples[column]] for column in columns]
    return list(known), np.array(rows, np.int64).T


def load_teachers(
    examples: Dataset, sources: NDArray[np.int64], settings: TeacherSettings, folder: Path, dtype: DType = "auto"
) -> tuple[Teacher, list[Embeddings]]:
    """Load the teachers of a recipe as a single teacher, and the embeddings by its dense models.

    Args:
        examples: columns query, positive, negative_1, ...
        sources: [m], the number of each example's source, which is the collection that a sparse teacher searches.
        folder: keeps embeddings and vectors, memory-mapped; an interrupted run resumes from them.
    """
    teachers, embeddings = list[Teacher](), list[Embeddings]()
    texts, rows = distinct_texts(examples, examples.column_names)
    for number, name in enumerate(settings.models):
        # A sparse teacher gives scores alone, a dense teacher also embeddings.
        if _is_sparse(name):
            kept = folder / f"teacher-{number}"
            teachers.append(sparse_scores(name, settings.max_length, examples, sources, kept, dtype))
            continue
        finished = folder / f"teacher-{number}-texts.npy"
        made_once(finished, partial(_embed_by, name, settings.max_length, texts, finished, dtype))
        embeddings.append(Embeddings(np.load(finished, mmap_mode="r"), rows))
        teachers.append(embeddings[-1].cosines)
    if settings.lexical:
        teachers.append(lexical_teacher(examples))
    if len(teachers) == 1:
        return teachers[0], embeddings
    return lambda rows: ensemble([teacher(rows) for teacher in teachers], settings.weights), embeddings


def _embed_by(name: str, max_length: int, texts: Sequence[str], finished: Path, dtype: DType) -> None:
    embed(texts, dense_teacher(name, max_length), finished, dtype)


def _is_sparse(name: str) -> bool:
    """Return True for a saved sparse encoder; a model without a saved kind counts as dense."""
    return load_file_path(locate(name), SAVED_AS) is not None and model_kind(name) == "sparse"


def sparse_scores(
    name: str, max_length: int, examples: Dataset, sources: NDArray[np.int64], folder: Path, dtype: DType
) -> Teacher:
    """Load a sparse encoder, with any output terms, as a teacher that returns its scores.

    A source is the collection for the IDF of its queries.
    """
    teacher = load(name)
    columns = _encoded(teacher, name, examples, folder, dtype, max_length)
    (queries, query_of), (documents, _), *_ = columns
    documents_of = np.stack([of for _, of in columns[1:]])
    power = TextEncoder(teacher, "query").query_idf
    factors = np.ones((sources.max() + 1, documents.shape[1]), np.float32)
    for source in np.unique(sources) if power else ():
        known = np.unique(documents_of[:, sources == source])
        frequencies = np.bincount(documents[known].indices, minlength=documents.shape[1])
        factors[source] = idf(frequencies, len(known)) ** power

    def scores(rows: NDArray[np.int64]) -> Tensor:
        weighed = queries[query_of[rows]].toarray() * factors[sources[rows]]
        return torch.from_numpy((documents[documents_of[:, rows].ravel()] @ weighed.T).T)

    return scores


def dense_teacher(name: str, max_length: int, device: str | None = None) -> SentenceTransformer:
    """Load a dense bi-encoder that reads at most `max_length` tokens; refuse a sparse encoder."""
    if _is_sparse(name):
        raise ModelError(f"teacher {name} is a sparse encoder: name a dense encoder")
    model = open_model(name, partial(SentenceTransformer, model_kwargs={"dtype": "float32"}), device)
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    model.max_seq_length = min(max_length, getattr(config, "max_position_embeddings", max_length))
    return model


def embed(
    items: Sequence[T],
    model: SentenceTransformer,
    finished: Path,
    dtype: DType,
    texts_of: Callable[[Sequence[T]], Sequence[Any]] = list,
    *,
    unit: bool = True,
    prompt: str | None = None,
) -> None:
    """Embed texts with a dense model, computing in `dtype`, and write the vectors [n, d] float16 to a file.

    The items are the texts, or `texts_of` turns items into texts. The vectors have length 1 unless `unit` is False. An
    interrupted run resumes when repeated.
    """
    unfinished = finished.with_suffix(".partial")
    if unfinished.exists():
        embeddings = open_memmap(unfinished, mode="r+")
    else:
        shape = (len(items), model.get_embedding_dimension())
        embeddings = open_memmap(unfinished, mode="w+", dtype=np.float16, shape=shape)
    # No text is embedded as the zero vector: rows of zeros are not done yet.
    done = int(embeddings.any(axis=1).sum()) // EMBEDDED_TOGETHER * EMBEDDED_TOGETHER
    with progress("teacher", len(items)) as advance:
        advance(done)
        for begin in range(done, len(items), EMBEDDED_TOGETHER):
            chunk = list(texts_of(items[begin : begin + EMBEDDED_TOGETHER]))
            with torch.autocast(model.device.type, torch.bfloat16, enabled=in_bfloat16(dtype, model.device)):
                vectors = model.encode(
                    chunk, prompt=prompt, normalize_embeddings=unit, show_progress_bar=False, convert_to_tensor=True
                )
            embeddings[begin : begin + EMBEDDED_TOGETHER] = vectors.float().cpu().numpy()
            embeddings.flush()
            advance(len(chunk))
    os.replace(unfinished, finished)


def load_sparse_teacher(
    name: str, student: SparseEncoder, examples: Dataset, folder: Path, dtype: DType = "auto"
) -> Teacher:
    """Load a sparse encoder as a teacher that returns its vectors [(2 + c) b, v]: queries, then documents by column.

    The folder keeps the vectors. Raises `ModelError` if the teacher's output terms are not the student's.
    """
    teacher = load(name)
    check_terms(f"sparse teacher {name}", teacher, terms(student), "alignment compares vectors term by term")
    columns = _encoded(teacher, name, examples, folder, dtype)
    return lambda rows: torch.from_numpy(np.concatenate([matrix[of[rows]].toarray() for matrix, of in columns]))


def check_terms(title: str, teacher: SparseEncoder, names: Sequence[str], reason: str) -> None:
    """Raise `ModelError` if the teacher's output terms are not the student's, `names`."""
    teacher_terms = terms(teacher)
    if vocabulary_fingerprint(teacher_terms) != vocabulary_fingerprint(names):
        raise ModelError(
            f"{title}: its {len(teacher_terms)} output terms differ from the student's {len(names)}: {reason}"
        )


def _encoded(
    teacher: SparseEncoder, name: str, examples: Dataset, folder: Path, dtype: DType, max_length: int | None = None
) -> list[tuple[csr_array, NDArray[np.int64]]]:
    """Return for each column the vectors of its distinct texts [t, v], memory-mapped, and each example's row."""
    matrices = []
    sides: dict[Role, list[str]] = {"query": examples.column_names[:1], "document": examples.column_names[1:]}
    for role, columns in sides.items():
        texts, places = distinct_texts(examples, columns)
        finished = made_once(
            folder / role, partial(_encode_side, teacher, name, role, texts, folder, dtype, max_length)
        )
        arrays, header = load_arrays(finished, TEACHER_VECTORS, verify=False)
        stored: Any = header["fingerprint"]
        now = encoding_model(teacher).fingerprint(number_type(stored))
        refuse_differences(stored, now, f"{folder}: teacher {name}", "train to another output")
        shape = len(texts), len(terms(teacher))
        matrix = csr_array((arrays["values"], arrays["terms"], arrays["offsets"]), shape=shape)
        matrices += [(matrix, column) for column in places.T]
    return matrices


def _encode_side(
    teacher: SparseEncoder,
    name: str,
    role: Role,
    texts: Sequence[str],
    folder: Path,
    dtype: DType,
    max_length: int | None,
) -> None:
    """Write the vectors of texts in one role into a folder of arrays, `folder / role`."""
    limit = TextEncoder(teacher, role).max_length
    read = min(max_length, limit) if max_length and limit else limit
    kind: DType = "auto" if isinstance(teacher, GraphModel) else dtype  # an exported model has a fixed type
    encoder, parts = TextEncoder(teacher, role, max_length=read, dtype=kind), folder / "parts"
    documents = (Document(str(row), text) for row, text in enumerate(texts))
    title = f"sparse teacher: {role}"
    encode_stream(encoder, documents, parts, model=name, source=role, title=title, total=len(texts))
    vectors = read_vectors(parts)
    weights = vectors.matrix
    arrays = {"values": weights.data, "terms": weights.indices, "offsets": weights.indptr}
    save_arrays(folder / role, TEACHER_VECTORS, arrays, {"fingerprint": vectors.meta.fingerprint})
    shutil.rmtree(parts)
