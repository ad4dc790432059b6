"""The endpoints of the service."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Query
from fastapi import Request as HTTPRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from vocable import __version__
from vocable.data import Document
from vocable.encoder.text_encoder import BATCH_TOKENS
from vocable.errors import ArgumentError, DataError, NoSpaceError, VocableError
from vocable.service import schemas
from vocable.service.batching import OverloadedError
from vocable.service.metrics import Metrics
from vocable.service.middleware import refusal
from vocable.service.pages import add_page
from vocable.service.service import Asked, NotFoundError, Reading, Service, ThereAlreadyError, TooLargeError
from vocable.service.view import Wanted

ERRORS: dict[type[Exception], int] = {
    ArgumentError: 422,
    DataError: 422,
    VocableError: 424,  # the index or its model
    NoSpaceError: 507,
    TooLargeError: 413,
    ThereAlreadyError: 409,
    NotFoundError: 404,
    OverloadedError: 429,
}
ABOUT = {
    400: "not JSON",
    401: "no token",
    403: "a name that is not the service's, or a page of another site",
    404: "no such document",
    405: "the index cannot change",
    408: "the request did not come in time",
    409: "a document is there already",
    413: "too large: the request, a text, or their number",
    415: "the header Content-Type: application/json is missing",
    422: "not what is expected",
    424: "the index or its model",
    429: "too much at once; Retry-After says when to come again",
    503: "the service is stopping",
    504: "not done in time",
    507: "no space left on the disk",
}
UNCHANGING = "this index cannot change: index again to a plain folder, or to a server"
ALWAYS = (400, 401, 403, 408, 413, 415, 422, 424, 429, 504, 507)


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of an endpoint, for the description."""
    return {status: {"model": schemas.Error, "description": ABOUT[status]} for status in sorted({*ALWAYS, *statuses})}


def endpoints(service: Service, metrics: Metrics, beside: Service | None = None) -> FastAPI:
    """The application without its guard; the services are closed at its end.

    `beside` is of a second index, which can be read under /beside.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()
        if beside is not None:
            beside.close()

    app = _application(lifespan)
    app.state.service = service
    _add_reading(app, service)
    _add_documents(app, service)
    _add_state(app, service, metrics, beside)
    _add_views(app, service)
    if beside is not None:
        second = _application()
        _add_reading(second, beside)
        _add_views(second, beside)
        app.mount("/beside", second)
    add_page(app)
    return app


def _application(lifespan: Any = None) -> FastAPI:
    """An application without endpoints, which answers errors."""

    app = FastAPI(
        title="vocable",
        version=__version__,
        description="Learned sparse retrieval over one index.",
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    for kind, status in ERRORS.items():
        app.add_exception_handler(kind, _answer_with(status))
    app.add_exception_handler(OSError, _unwritten)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _failed)
    return app


def _add_reading(app: FastAPI, service: Service) -> None:
    @app.post("/embed_sparse", responses=responses(), response_model=list[list[schemas.SparseValue]])
    async def embed_sparse(request: schemas.EmbedSparseRequest) -> Any:
        """Encode texts, as text-embeddings-inference does."""
        texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
        if not texts:
            raise ArgumentError("`inputs` cannot be empty")
        reading = Reading(request.prompt_name, request.truncation_direction.lower() if request.truncate else None)
        rows = await service.embed(texts, reading)
        return JSONResponse([_sparse_values(*row) for row in rows])

    @app.post("/search", responses=responses(), response_model=schemas.SearchAnswer)
    async def search(request: schemas.SearchRequest, http: HTTPRequest) -> Any:
        """Find the best documents for a query."""
        http.state.query = request.query
        row = None
        if request.vector is not None:
            weights = {one.index: one.value for one in request.vector}
            if len(weights) < len(request.vector):
                raise ArgumentError("vector: an index occurs twice")
            values = np.array([weights[column] for column in sorted(weights)], dtype=np.float32)
            row = np.array(sorted(weights), dtype=np.int32)[values > 0], values[values > 0]
        asked = Asked(
            k=request.k,
            hybrid=request.hybrid,
            weights=None if request.weights is None else tuple(request.weights.items()),
            fusion=request.fusion,
            filter=service.filter(request.filter),
            explain=request.explain,
            max_terms=request.max_terms,
            min_weight=request.min_weight,
        )
        hits = await service.search(request.query, row, asked)
        return JSONResponse({"hits": [hit.to_json() for hit in hits]})

    @app.post("/explain", responses=responses(404), response_model=schemas.Explanation | schemas.Expansion)
    async def explain(request: schemas.ExplainRequest, http: HTTPRequest) -> Any:
        """Say which terms make a score, or what a query becomes."""
        http.state.query = request.query
        explained = await service.explain(request.query, request.document, request.id, request.k)
        return JSONResponse(explained.to_json())

    @app.post("/v1/embeddings", responses=responses() | {424: {"model": schemas.OpenAIError, "description": "always"}})
    async def embeddings() -> JSONResponse:
        """Refuse: the vectors are sparse, and OpenAI's interface has dense ones only."""
        message = "the vectors of this model are sparse, which this interface cannot say: POST /embed_sparse"
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        return JSONResponse({"error": error}, 424)


def _add_views(app: FastAPI, service: Service) -> None:
    @app.post("/view", responses=responses(), response_model=schemas.View)
    async def see(request: schemas.ViewRequest, http: HTTPRequest) -> Any:
        """Show a query as the page does: its terms, and the best documents with their ranks in every ranking."""
        http.state.query = request.query
        how = request.k, tuple(request.show), service.filter(request.filter), request.max_terms, request.min_weight
        return JSONResponse(await service.view(request.query, Wanted(*how)))

    @app.get("/postings", responses=responses(404), response_model=schemas.Postings)
    async def postings(term: Annotated[str, Query(max_length=schemas.LONGEST_ID)]) -> Any:
        """Say how many documents have a term, how much it weighs there, and in which it weighs most."""
        return JSONResponse(await service.postings(term))


def _add_documents(app: FastAPI, service: Service) -> None:
    @app.get("/documents", responses=responses(), response_model=list[schemas.Document | None])
    async def get_documents(id: Annotated[schemas.Ids, Query()]) -> Any:
        """Read documents, null where there is none."""
        found = await service.get(id)
        return JSONResponse([None if document is None else _json(document) for document in found])

    @app.post("/documents", responses=responses(405, 409), response_model=schemas.Changed)
    async def add_documents(request: schemas.DocumentsRequest) -> Any:
        """Add documents, all of them or none: one that is there already is an error."""
        return await change(request, replace=False)

    @app.put("/documents", responses=responses(405), response_model=schemas.Changed)
    async def upsert_documents(request: schemas.DocumentsRequest) -> Any:
        """Add documents, or replace those with their ids."""
        return await change(request, replace=True)

    @app.delete("/documents", responses=responses(405), response_model=schemas.Changed)
    async def delete_documents(id: Annotated[schemas.Ids, Query()]) -> Any:
        """Delete documents; an id that is not there is passed over."""
        if not service.can_change:
            return refusal(405, UNCHANGING, {"Allow": "GET"})
        return JSONResponse((await service.delete(id)).to_json())

    async def change(request: schemas.DocumentsRequest, *, replace: bool) -> JSONResponse:
        if not service.can_change:
            return refusal(405, UNCHANGING, {"Allow": "GET"})
        documents = [Document(one.id, one.text, one.title, one.fields) for one in request.documents]
        return JSONResponse((await service.add(documents, replace=replace)).to_json())


def _add_state(app: FastAPI, service: Service, metrics: Metrics, beside: Service | None) -> None:
    @app.get("/info", responses=responses())
    async def info() -> schemas.Info:
        """Say what is served."""
        limits, device = service.limits, service.model.device
        [count] = await service.batcher.run(lambda items: [len(service.collection)], [None])
        return schemas.Info(
            model_id=service.collection.model,
            model_dtype=str(service.queries.model.dtype).removeprefix("torch."),
            model_type={"embedding": {"pooling": "splade"}},
            max_concurrent_requests=limits.max_requests,
            max_input_length=service.documents.max_length or 0,
            max_batch_tokens=BATCH_TOKENS.get(device.type, BATCH_TOKENS["cuda"]),
            max_batch_requests=limits.batch_size,
            max_client_batch_size=limits.max_inputs,
            version=__version__,
            documents=count,
            spaces=list(service.collection.spaces),
            can_change=service.can_change,
            wacky=service.wacky is not None,
            beside=None if beside is None else beside.collection.model,
        )

    @app.get("/health")
    async def health() -> schemas.Ready:
        """Say that the process answers."""
        return schemas.Ready(status="ok")

    @app.get(
        "/ready", responses={503: {"model": schemas.Error, "description": ABOUT[503]}}, response_model=schemas.Ready
    )
    async def ready() -> Any:
        """Say whether requests are taken on."""
        return schemas.Ready(status="ok") if service.batcher.alive else refusal(503, "the service is stopping")

    @app.get("/metrics", response_class=PlainTextResponse, responses=responses())
    async def get_metrics() -> PlainTextResponse:
        """Count for Prometheus."""
        return PlainTextResponse(metrics.render(), media_type="text/plain; version=0.0.4")


def _sparse_values(columns: np.ndarray, weights: np.ndarray) -> list[dict[str, Any]]:
    pairs = zip(columns.tolist(), weights.tolist(), strict=True)
    return [{"index": column, "value": weight} for column, weight in pairs]


def _json(document: Document) -> dict[str, Any]:
    return document._asdict() | {"fields": dict(document.fields)}


def _answer_with(status: int) -> Any:
    async def answer(request: HTTPRequest, error: Exception) -> Response:
        return refusal(status, " ".join(str(error).split()))

    return answer


async def _unwritten(request: HTTPRequest, error: Exception) -> Response:
    """Answer that the disk is full; any other error of the system is one of ours."""
    if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
        raise error
    return refusal(507, "no space left on the disk of the index: free some, and send the change again")


async def _invalid(request: HTTPRequest, error: Exception) -> Response:
    """What a body or a parameter of a wrong shape is answered with."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return refusal(422, f"not JSON at character {first['loc'][-1]}: {first.get('ctx', {}).get('error', '')}")
    where = ".".join(map(str, first["loc"][1:])) or str(first["loc"][0])
    return refusal(422, f"{where}: {first['msg']}"[:500])


async def _failed(request: HTTPRequest, error: Exception) -> Response:
    return refusal(500, "internal error: the log has more")  # the guard writes it


async def _refused(request: HTTPRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, str(error.detail), dict(error.headers or {}))
