"""A client of the service: its answers as the records of `vocable.service.schemas`.

with Client("http://localhost:8000") as client:
    for hit in client.search("no duplicates", k=3):
        print(hit.rank, hit.score, hit.id)
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import TypeAdapter

from vocable.data.texts import Text, Texts, as_text, as_texts
from vocable.errors import ServiceError, require_extra
from vocable.service.schemas import Changed, Document, Expansion, Explanation, Hit, Info, SearchAnswer, SparseValue

httpx: Any = require_extra("httpx", "serve")

DOCUMENTS = TypeAdapter(list[Document | None])
EXPLAINED: TypeAdapter[Explanation | Expansion] = TypeAdapter(Explanation | Expansion)
VECTORS = TypeAdapter(list[list[SparseValue]])


class Client:
    """A connection to a service; what is refused, or not answered, raises `ServiceError`."""

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 30.0, retries: int = 5) -> None:
        """A request that came when there was too much to do (429) is sent again, so many times at most."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http, self._retries = httpx.Client(base_url=url, headers=headers, timeout=timeout), retries

    def search(self, query: Text | None = None, k: int = 10, **how: Any) -> list[Hit]:
        """The hits of a text, or of a `vector`; `how` are the other keys of `SearchRequest`."""
        text = None if query is None else as_text(query, "query")
        return SearchAnswer.model_validate_json(self._ask("POST", "/search", {"query": text, "k": k, **how})).hits

    def explain(self, query: Text, **how: Any) -> Explanation | Expansion:
        """The terms of a query, or those that it shares with a `document` or that of an `id`."""
        return EXPLAINED.validate_json(self._ask("POST", "/explain", {"query": as_text(query, "query"), **how}))

    def embed(self, texts: Texts, role: str = "document") -> list[list[SparseValue]]:
        """The vectors of texts, which are cut where they are too long."""
        body = {"inputs": as_texts(texts), "truncate": True, "prompt_name": role}
        return VECTORS.validate_json(self._ask("POST", "/embed_sparse", body))

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        """The documents with these ids, None where there is none."""
        return DOCUMENTS.validate_json(self._ask("GET", "/documents", ids=ids))

    def add(self, documents: Sequence[Mapping[str, Any]], *, replace: bool = False) -> Changed:
        """Add documents with the keys id, text, title and fields; one that is there is an error, or is replaced."""
        answer = self._ask("PUT" if replace else "POST", "/documents", {"documents": list(documents)})
        return Changed.model_validate_json(answer)

    def delete(self, ids: Sequence[str]) -> Changed:
        """Delete documents; an id that is not there is passed over."""
        return Changed.model_validate_json(self._ask("DELETE", "/documents", ids=ids))

    def info(self) -> Info:
        """What is served."""
        return Info.model_validate_json(self._ask("GET", "/info"))

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, method: str, path: str, body: Any = None, ids: Sequence[str] = ()) -> bytes:
        parameters = {"id": list(ids)} if ids else None
        for left in reversed(range(self._retries + 1)):
            try:
                answer = self._http.request(method, path, json=body, params=parameters)
            except httpx.HTTPError as error:
                raise ServiceError(f"{self._http.base_url}: {error or type(error).__name__}") from error
            if answer.status_code != 429 or not left:
                break
            time.sleep(float(answer.headers.get("Retry-After", 1)))
        if answer.is_error:
            raise ServiceError(f"{self._http.base_url}: {answer.status_code}: {_reason(answer)}")
        return bytes(answer.content)


def _reason(answer: Any) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return str(answer.reason_phrase)
