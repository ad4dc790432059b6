"""A client of the service, which returns the records of a local search. It does not load torch.

with Client("http://localhost:8000") as client:
    for hit in client.search("no duplicates", k=3):
        print(hit.rank, hit.score, hit.document.id)
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, Unpack

import httpx
from pydantic import TypeAdapter

from vocable.collection.records import Answer, Changed, Hit
from vocable.core.tables import masked
from vocable.data import Document, Query
from vocable.data.texts import Text, Texts, as_text, as_texts
from vocable.errors import ArgumentError, ServiceError
from vocable.explanation.explain import Expansion, Explanation
from vocable.options import SearchOptions
from vocable.service import TOKEN_VARIABLE
from vocable.service.schemas import Info, SearchAnswer, SparseValue, WrittenDocument

CHANGED = TypeAdapter(Changed)
DOCUMENTS = TypeAdapter(list[WrittenDocument | None])
EXPLAINED: TypeAdapter[Explanation | Expansion] = TypeAdapter(Explanation | Expansion)
SPARSE_VECTORS = TypeAdapter(list[list[SparseValue]])
LOCAL = (
    "allow_changed_model",
    "device",
    "engine_options",
    "rerank",
    "wacky",
    "wacky_share",
    "run",
)  # settings of a local index alone


class Client:
    """A connection to a service; a refused or unanswered request raises `ServiceError`."""

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 30.0, retries: int = 5) -> None:
        """`retries` limits how often a request is repeated if the service is busy (status 429).

        Raises `ArgumentError` for a wrong address; no error has its password.
        """
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._place = masked(url.rstrip("/"))  # the address in errors
        try:
            self._http, self._retries = httpx.Client(base_url=url, headers=headers, timeout=timeout), retries
        except httpx.InvalidURL as error:
            raise ArgumentError(f"{self._place} is not the address of a service: {error}") from None

    def search(
        self,
        query: Text | None = None,
        k: int = 10,
        *,
        vector: Sequence[SparseValue] | None = None,
        explain: bool = False,
        reranked: bool | None = None,
        **options: Unpack[SearchOptions],
    ) -> list[Hit]:
        """Return the hits of a text, of its `vector` as `embed` returns it, or of the option `like`.

        `reranked` says whether the service reranks them; by default it does so if it has a cross encoder.
        """
        text = None if query is None else as_text(query, "query")
        values = None if vector is None else [value.model_dump() for value in vector]
        body = {"query": text, "vector": values, "k": k, "explain": explain, "rerank": reranked, **options}
        return [document.hit() for document in self.answer(body).hits]

    def answer(self, body: Mapping[str, object]) -> SearchAnswer:
        """Return the answer to a request of /search."""
        return SearchAnswer.model_validate_json(self._request("POST", "/search", body))

    def explain(
        self, query: Text, *, document: str | None = None, id: str | None = None, k: int = 20
    ) -> Explanation | Expansion:
        """Return the terms that a query shares with a text or a document of the index; with neither, its own terms."""
        body = {"query": as_text(query, "query"), "document": document, "id": id, "k": k}
        return EXPLAINED.validate_json(self._request("POST", "/explain", body))

    def embed(self, texts: Texts, role: str = "document") -> list[list[SparseValue]]:
        """Return the vectors of texts; long texts are truncated."""
        body = {"inputs": as_texts(texts), "truncate": True, "prompt_name": role}
        return SPARSE_VECTORS.validate_json(self._request("POST", "/embed_sparse", body))

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """Return the documents with these ids, None for an unknown id."""
        bodies = DOCUMENTS.validate_json(self._request("GET", "/documents", ids=ids))
        return [None if body is None else body.document() for body in bodies]

    def add(self, documents: Sequence[Mapping[str, object]], *, replace: bool = False) -> Changed:
        """Add documents with the keys id, text, title and fields; a known id is an error unless `replace`."""
        answer = self._request("PUT" if replace else "POST", "/documents", {"documents": list(documents)})
        return CHANGED.validate_json(answer)

    def delete(self, ids: Sequence[str]) -> Changed:
        """Delete documents; unknown ids are ignored."""
        return CHANGED.validate_json(self._request("DELETE", "/documents", ids=ids))

    def info(self) -> Info:
        """Return the description of the service: model, index and limits."""
        return Info.model_validate_json(self._request("GET", "/info"))

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(self, method: str, path: str, body: object = None, ids: Sequence[str] = ()) -> bytes:
        parameters = {"id": list(ids)} if ids else None
        for left in reversed(range(self._retries + 1)):
            try:
                answer = self._http.request(method, path, json=body, params=parameters)
            except httpx.HTTPError as error:
                raise ServiceError(f"{self._place}: {error or type(error).__name__}") from error
            if answer.status_code != 429 or not left:
                break
            time.sleep(float(answer.headers.get("Retry-After", 1)))
        if answer.is_error:
            raise ServiceError(f"{self._place}: {answer.status_code}: {_reason(answer)}")
        return bytes(answer.content)


def search_service(url: str, queries: Iterable[Query], *, like: str | None = None, **settings: Any) -> Iterator[Answer]:
    """Search the index of a service with the settings of `vocable.search`; the token is read from VOCABLE_TOKEN.

    Raises `ArgumentError` for a setting of a local index, `ServiceError` if the service does not answer.
    """
    if local := next((name for name in LOCAL if settings.pop(name, None)), None):
        raise ArgumentError(f"{local} is for an index on this machine: a service has its own")
    settings = {"sections": False} | {name: value for name, value in settings.items() if name not in LOCAL}
    with Client(url, token=os.environ.get(TOKEN_VARIABLE)) as client:
        for query in queries:
            if not query.text:  # a blank line of stdin
                yield Answer(query, ())
                continue
            body = {"query": None if like else query.text, "like": like, **settings}
            yield client.answer(body).answer(query)


def _reason(answer: Any) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return str(answer.reason_phrase)
