"""The endpoints of the service."""

from __future__ import annotations

import errno
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import ceil
from typing import Annotated, Any, cast

import numpy as np
from fastapi import FastAPI, Query
from fastapi import Request as HTTPRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from vocable import __version__
from vocable.collection.collection import Collection
from vocable.collection.records import Changed
from vocable.core.faults import first_fault
from vocable.data import Document
from vocable.errors import ArgumentError, DataError, GoneError, NoSpaceError, UnavailableError, VocableError
from vocable.explanation.explain import Expansion, Explanation, json_values
from vocable.options import SearchOptions, check
from vocable.service import schemas
from vocable.service.batching import OverloadedError
from vocable.service.mcp import ToolEndpoint
from vocable.service.metrics import Metrics
from vocable.service.middleware import refusal
from vocable.service.pages import add_page
from vocable.service.served import Served
from vocable.service.service import NotFoundError, Prompt, Service, ThereAlreadyError, TooLargeError
from vocable.service.view import TermPostings, View

STATUSES: dict[type[Exception], int] = {
    ArgumentError: 422,
    DataError: 422,
    VocableError: 424,
    NoSpaceError: 507,
    UnavailableError: 503,
    GoneError: 503,
    TooLargeError: 413,
    ThereAlreadyError: 409,
    NotFoundError: 404,
    OverloadedError: 429,
}
DESCRIPTIONS = {
    400: "not JSON, or Content-Length beside Transfer-Encoding",
    401: "no token",
    403: "an unknown host name, or a page of another site",
    404: "no such document",
    405: "the index cannot change, or another method",
    408: "the request did not arrive in time",
    409: "duplicate id",
    413: "too large: the request, a text, or the number of texts",
    415: "the header Content-Type: application/json is missing",
    422: "an invalid request",
    424: "an error of the index or its model",
    429: "too many requests; Retry-After is when to try again",
    503: "the service is stopping, or the server of the index does not answer",
    504: "not done in time",
    507: "no space left on the disk",
}
ALWAYS = (400, 401, 403, 408, 413, 415, 422, 424, 429, 504, 507)
Refusals = dict[int | str, dict[str, Any]]


def refusals(*statuses: int) -> Refusals:
    """Return the errors of an endpoint, for the description."""
    return {
        status: {"model": schemas.ErrorAnswer, "description": DESCRIPTIONS[status]}
        for status in sorted({*ALWAYS, *statuses})
    }


def endpoints(served: Served, metrics: Metrics, second: Service | None = None) -> FastAPI:
    """Return the application without its middleware; it closes the services at its end.

    `second` is the service of a second index, which can be read under /compare-with.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        served.close()
        if second is not None:
            second.close()

    app = _application(lifespan)
    app.state.service, app.state.served = served.now, served
    _add_reading(app, served)
    _add_documents(app, served)
    _add_state(app, served, metrics, second)
    _add_views(app, served)
    app.add_route("/mcp", cast(Any, ToolEndpoint(lambda: served.now)), methods=["POST"], include_in_schema=False)
    # The second index can be read and viewed, not changed.
    if second is not None:
        other, other_served = _application(), Served(second, lambda: second)
        other.state.served = other_served
        _add_reading(other, other_served)
        _add_views(other, other_served)
        app.mount("/compare-with", other)
    add_page(app)
    return app


def _application(lifespan: Any = None) -> FastAPI:
    """Return an application without endpoints that answers errors."""
    app = FastAPI(
        title="vocable",
        version=__version__,
        description="Learned sparse retrieval over one index.",
        docs_url=None,  # the page would load scripts from another site
        redoc_url=None,
        lifespan=lifespan,
        generate_unique_id_function=lambda route: route.name,  # the verbs
        separate_input_output_schemas=False,  # what an answer may leave out is not required
    )
    described = app.openapi
    app.openapi = lambda: _with_optional_fields(described())  # type: ignore[method-assign]
    for kind, status in STATUSES.items():
        app.add_exception_handler(kind, _answer_with(status))
    app.add_exception_handler(OSError, _full_disk)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _failed)
    return app


def _with_optional_fields(description: dict[str, Any]) -> dict[str, Any]:
    """Return an OpenAPI description with its defaults in words: generators of types require fields with a default."""
    for schema in description["components"]["schemas"].values():
        for field in schema.get("properties", {}).values():
            if (default := field.pop("default", None)) not in (None, "", [], {}):
                words = f"{field.get('description', '')} {json.dumps(default)} by default."
                field["description"] = words.strip()
    return description


def _add_reading(app: FastAPI, served: Served) -> None:
    @app.post("/embed_sparse", responses=refusals(), response_model=list[list[schemas.SparseValue]])
    async def embed_sparse(request: schemas.EmbedSparseRequest) -> Response:
        """Encode texts, as text-embeddings-inference does."""
        texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
        if not texts:
            raise ArgumentError("`inputs` cannot be empty")
        side = request.truncation_direction.lower() if request.truncate else None
        rows = await served.now.embed(texts, Prompt(request.prompt_name, side))
        return JSONResponse([_sparse_values(row.columns, row.weights) for row in rows])

    @app.post("/search", responses=refusals(), response_model=schemas.SearchAnswer)
    async def search(request: schemas.SearchRequest, http: HTTPRequest) -> Response:
        """Find the best documents for a query."""
        http.state.query = request.query
        answer = await served.now.search(request)
        values = answer.to_json()
        if answer.pages:
            values["pages"] = [hit.to_json() for hit in answer.pages]
        return JSONResponse(
            {name: value for name, value in values.items() if name in schemas.SearchAnswer.model_fields}
        )

    @app.post("/explain", responses=refusals(404), response_model=Explanation | Expansion)
    async def explain(request: schemas.ExplainRequest, http: HTTPRequest) -> Response:
        """Return the terms that make a score, or the terms that a query becomes."""
        http.state.query = request.query
        return JSONResponse(json_values(await served.now.explain(request)))


def _add_views(app: FastAPI, served: Served) -> None:
    @app.post("/view", name="view", responses=refusals(), response_model=View)
    async def see(request: schemas.ViewRequest, http: HTTPRequest) -> Response:
        """Return the content of the page: a query's terms, and the best documents with their ranks."""
        http.state.query = request.query
        return JSONResponse(json_values(await served.now.view(request)))

    @app.get("/postings", responses=refusals(404), response_model=TermPostings)
    async def postings(term: Annotated[schemas.Id, Query()]) -> Response:
        """Count the documents of a term and its weights, and list the heaviest documents."""
        return JSONResponse(json_values(await served.now.postings(term)))


def _add_documents(app: FastAPI, served: Served) -> None:
    unchanging = f"this index cannot change: {served.now.collection.store.about.instead}"

    @app.get("/documents", responses=refusals(), response_model=list[schemas.WrittenDocument | None])
    async def get_documents(id: Annotated[schemas.Ids, Query()]) -> Response:
        """Read documents, null for an unknown id."""
        documents = await served.now.get(id)
        return JSONResponse([stored and stored._asdict() | {"fields": dict(stored.fields)} for stored in documents])

    @app.post("/documents", responses=refusals(405, 409), response_model=Changed)
    async def add_documents(request: schemas.DocumentsRequest) -> Response:
        """Add all of the documents or none: a duplicate id is an error."""
        return await change(request, replace=False)

    @app.put("/documents", responses=refusals(405), response_model=Changed)
    async def upsert_documents(request: schemas.DocumentsRequest) -> Response:
        """Add documents, or replace those with their ids."""
        return await change(request, replace=True)

    @app.delete("/documents", responses=refusals(405), response_model=Changed)
    async def delete_documents(id: Annotated[schemas.Ids, Query()]) -> Response:
        """Delete documents; unknown ids are ignored."""
        if not served.now.can_change:
            return refusal(405, unchanging, {"Allow": "GET"})
        return JSONResponse((await served.now.delete(id)).to_json())

    async def change(request: schemas.DocumentsRequest, *, replace: bool) -> JSONResponse:
        if not served.now.can_change:
            return refusal(405, unchanging, {"Allow": "GET"})
        documents: list[Document] = [body.document() for body in request.documents]
        return JSONResponse((await served.now.add(documents, replace=replace)).to_json())


def _add_state(app: FastAPI, served: Served, metrics: Metrics, second: Service | None) -> None:
    @app.get("/info", responses=refusals())
    async def info() -> schemas.Info:
        """Return the index and the limits."""
        limits = served.now.limits
        return schemas.Info(
            title=served.now.title,
            model_id=served.now.collection.models.name,
            model_dtype=served.now.queries.model.dtype,
            model_type={"embedding": {"pooling": "splade"}},
            max_concurrent_requests=limits["max_requests"],
            max_input_length=served.now.documents.max_length or 0,
            max_batch_tokens=served.now.documents.batch_tokens,
            max_batch_requests=limits["batch_size"],
            max_client_batch_size=limits["max_inputs"],
            version=__version__,
            documents=await served.now.look(Collection.count),
            spaces=list(served.now.collection.models.query_spaces),
            weights={**served.now.collection.searcher.weighting(check(SearchOptions, {}))},
            can_change=served.now.can_change,
            wacky=served.now.wacky is not None,
            rerank=served.now.rerank["rerank"],
            compare_with=None if second is None else second.collection.models.name,
        )

    @app.get("/health", response_model_exclude_none=True)
    async def health() -> schemas.Ready:
        """Answer, as long as the process is alive."""
        return schemas.Ready(status="ok")

    # A load balancer asks /ready, since /health only tells that the process lives.
    stopping: Refusals = {503: {"model": schemas.ErrorAnswer, "description": DESCRIPTIONS[503]}}

    @app.get("/ready", responses=stopping, response_model=schemas.Ready, response_model_exclude_none=True)
    async def ready() -> schemas.Ready | JSONResponse:
        """Answer whether requests are accepted, and the index can be searched."""
        if not served.now.batcher.alive:
            return refusal(503, "the service is stopping")
        try:
            return schemas.Ready(status="ok", missing=await served.now.check_place())
        except TimeoutError:
            return refusal(503, "the index did not answer a search in time")
        except VocableError as error:
            return refusal(503, served.now.told(error))

    @app.post("/reload", responses=refusals(), response_model=schemas.Ready, response_model_exclude_none=True)
    async def reload() -> schemas.Ready:
        """Open the index again: the collection that has its name now, with that collection's model."""
        await served.reload()
        return schemas.Ready(status="ok")

    @app.get("/metrics", name="metrics", response_class=Response, responses=refusals())
    async def get_metrics() -> Response:
        """Return the metrics for Prometheus."""
        metrics.ready.set(served.now.readiness.failure is None)
        return Response(metrics.render(), media_type=CONTENT_TYPE_LATEST)


def _sparse_values(columns: np.ndarray, weights: np.ndarray) -> list[dict[str, float]]:
    pairs = zip(columns.tolist(), weights.tolist(), strict=True)
    return [{"index": column, "value": weight} for column, weight in pairs]


def _answer_with(status: int) -> Any:
    async def answer(request: HTTPRequest, error: Exception) -> Response:
        headers = None
        if isinstance(error, OverloadedError | UnavailableError):
            headers = {"Retry-After": str(max(1, ceil(error.seconds)))}
        return refusal(status, request.app.state.served.now.told(error), headers)

    return answer


async def _full_disk(request: HTTPRequest, error: Exception) -> Response:
    """Answer a full disk; any other error of the operating system is internal."""
    if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
        raise error
    return refusal(507, "no space left on the disk of the index: free some, and send the change again")


async def _invalid(request: HTTPRequest, error: Exception) -> Response:
    """Answer a body or a parameter of a wrong shape."""
    assert isinstance(error, RequestValidationError)
    first = first_fault(error.errors())
    if first["type"] == "json_invalid":
        return refusal(422, f"not JSON at character {first['loc'][-1]}: {first.get('ctx', {}).get('error', '')}")
    return refusal(422, schemas.fault(first, outer=1))


async def _failed(request: HTTPRequest, error: Exception) -> Response:
    return refusal(500, "internal error: the log has more")  # the middleware writes it


async def _refused(request: HTTPRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, str(error.detail), dict(error.headers or {}))
