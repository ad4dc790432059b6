"""The endpoints of the service."""

from __future__ import annotations

import errno
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Query
from fastapi import Request as HTTPRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from vocable import __version__
from vocable.collection.records import Changed
from vocable.data import Document
from vocable.encoding.dense_models import normalized
from vocable.errors import ArgumentError, DataError, NoSpaceError, UnavailableError, VocableError
from vocable.explanation.explain import Expansion, Explanation, json_values
from vocable.options import SearchOptions, check
from vocable.service import schemas
from vocable.service.batching import OverloadedError
from vocable.service.mcp import ToolEndpoint
from vocable.service.metrics import Metrics
from vocable.service.middleware import refusal
from vocable.service.pages import add_page
from vocable.service.service import NotFoundError, Prompt, Service, ThereAlreadyError, TooLargeError
from vocable.service.view import TermPostings, View

STATUSES: dict[type[Exception], int] = {
    ArgumentError: 422,
    DataError: 422,
    VocableError: 424,
    NoSpaceError: 507,
    UnavailableError: 503,
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
    503: "the service is stopping",
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


def endpoints(service: Service, metrics: Metrics, second: Service | None = None) -> FastAPI:
    """Return the application without its middleware; it closes the services at its end.

    `second` is the service of a second index, which can be read under /compare-with.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()
        if second is not None:
            second.close()

    app = _application(lifespan)
    app.state.service = service
    _add_reading(app, service)
    _add_documents(app, service)
    _add_state(app, service, metrics, second)
    _add_views(app, service)
    app.add_route("/mcp", ToolEndpoint(service), methods=["POST"], include_in_schema=False)  # type: ignore[arg-type]
    if second is not None:
        other = _application()
        _add_reading(other, second)
        _add_views(other, second)
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


def _add_reading(app: FastAPI, service: Service) -> None:
    @app.post("/embed_sparse", responses=refusals(), response_model=list[list[schemas.SparseValue]])
    async def embed_sparse(request: schemas.EmbedSparseRequest) -> Response:
        """Encode texts, as text-embeddings-inference does."""
        texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
        if not texts:
            raise ArgumentError("`inputs` cannot be empty")
        side = request.truncation_direction.lower() if request.truncate else None
        rows = await service.embed(texts, Prompt(request.prompt_name, side))
        return JSONResponse([_sparse_values(row.columns, row.weights) for row in rows])

    @app.post("/search", responses=refusals(), response_model=schemas.SearchAnswer)
    async def search(request: schemas.SearchRequest, http: HTTPRequest) -> Response:
        """Find the best documents for a query."""
        http.state.query = request.query
        answer = await service.search(request)
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
        return JSONResponse(json_values(await service.explain(request)))

    sparse_alone: Refusals = {424: {"model": schemas.OpenAIError, "description": "the model has no dense vectors"}}

    @app.post("/v1/embeddings", responses=refusals() | sparse_alone, response_model=schemas.EmbeddingsResponse)
    async def embeddings(request: schemas.EmbeddingsRequest) -> Response:
        """Encode texts as dense vectors, as OpenAI does; refuse it of a model that is sparse alone."""
        if (most := service.model.dimensions) is None:
            message = "the vectors of this model are sparse, which this interface cannot express: POST /embed_sparse"
            error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
            return JSONResponse({"error": error}, 424)
        texts = [request.input] if isinstance(request.input, str) else request.input
        if not texts:
            raise ArgumentError("`input` cannot be empty")
        if (kept := request.dimensions or most) > most:
            raise ArgumentError(f"dimensions must be at most {most}, not {kept}")
        prompt = Prompt(request.prompt_name, "right" if request.truncate else None)
        rows = await service.embed(texts, prompt)
        vectors = normalized([row.dense[:kept] for row in rows if row.dense is not None]).astype("<f4")
        base64 = request.encoding_format == "base64"
        data = [b64encode(vector.tobytes()).decode() if base64 else vector.tolist() for vector in vectors]
        tokens = await service.tokens(texts, prompt)
        answer = schemas.EmbeddingsResponse(
            data=[schemas.Embedding(index=number, embedding=value) for number, value in enumerate(data)],
            model=service.collection.models.name,
            usage=schemas.Usage(prompt_tokens=tokens, total_tokens=tokens),
        )
        return JSONResponse(answer.model_dump())


def _add_views(app: FastAPI, service: Service) -> None:
    @app.post("/view", name="view", responses=refusals(), response_model=View)
    async def see(request: schemas.ViewRequest, http: HTTPRequest) -> Response:
        """Return the content of the page: a query's terms, and the best documents with their ranks."""
        http.state.query = request.query
        return JSONResponse(json_values(await service.view(request)))

    @app.get("/postings", responses=refusals(404), response_model=TermPostings)
    async def postings(term: Annotated[schemas.Id, Query()]) -> Response:
        """Count the documents of a term and its weights, and list the heaviest documents."""
        return JSONResponse(json_values(await service.postings(term)))


def _add_documents(app: FastAPI, service: Service) -> None:
    unchanging = f"this index cannot change: {service.collection.store.about.instead}"

    @app.get("/documents", responses=refusals(), response_model=list[schemas.WrittenDocument | None])
    async def get_documents(id: Annotated[schemas.Ids, Query()]) -> Response:
        """Read documents, null for an unknown id."""
        documents = await service.get(id)
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
        if not service.can_change:
            return refusal(405, unchanging, {"Allow": "GET"})
        return JSONResponse((await service.delete(id)).to_json())

    async def change(request: schemas.DocumentsRequest, *, replace: bool) -> JSONResponse:
        if not service.can_change:
            return refusal(405, unchanging, {"Allow": "GET"})
        documents: list[Document] = [body.document() for body in request.documents]
        return JSONResponse((await service.add(documents, replace=replace)).to_json())


def _add_state(app: FastAPI, service: Service, metrics: Metrics, second: Service | None) -> None:
    @app.get("/info", responses=refusals())
    async def info() -> schemas.Info:
        """Return the index and the limits."""
        limits = service.limits
        return schemas.Info(
            title=service.title,
            model_id=service.collection.models.name,
            model_dtype=service.queries.model.dtype,
            model_type={"embedding": {"pooling": "splade"}},
            max_concurrent_requests=limits["max_requests"],
            max_input_length=service.documents.max_length or 0,
            max_batch_tokens=service.documents.batch_tokens,
            max_batch_requests=limits["batch_size"],
            max_client_batch_size=limits["max_inputs"],
            version=__version__,
            documents=await service.count(),
            spaces=list(service.collection.models.query_spaces),
            weights={**service.collection.searcher.weighting(check(SearchOptions, {}))},
            dimensions=service.model.dimensions,
            can_change=service.can_change,
            wacky=service.wacky is not None,
            rerank=service.rerank["rerank"],
            compare_with=None if second is None else second.collection.models.name,
        )

    @app.get("/health")
    async def health() -> schemas.Ready:
        """Answer, as long as the process is alive."""
        return schemas.Ready(status="ok")

    stopping: Refusals = {503: {"model": schemas.ErrorAnswer, "description": DESCRIPTIONS[503]}}

    @app.get("/ready", responses=stopping, response_model=schemas.Ready)
    async def ready() -> schemas.Ready | JSONResponse:
        """Answer whether requests are accepted."""
        return schemas.Ready(status="ok") if service.batcher.alive else refusal(503, "the service is stopping")

    @app.get("/metrics", name="metrics", response_class=Response, responses=refusals())
    async def get_metrics() -> Response:
        """Return the metrics for Prometheus."""
        return Response(metrics.render(), media_type=CONTENT_TYPE_LATEST)


def _sparse_values(columns: np.ndarray, weights: np.ndarray) -> list[dict[str, float]]:
    pairs = zip(columns.tolist(), weights.tolist(), strict=True)
    return [{"index": column, "value": weight} for column, weight in pairs]


def _answer_with(status: int) -> Any:
    async def answer(request: HTTPRequest, error: Exception) -> Response:
        headers = {"Retry-After": str(error.seconds)} if isinstance(error, OverloadedError) else None
        return refusal(status, " ".join(str(error).split()), headers)

    return answer


async def _full_disk(request: HTTPRequest, error: Exception) -> Response:
    """Answer a full disk; any other error of the operating system is internal."""
    if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
        raise error
    return refusal(507, "no space left on the disk of the index: free some, and send the change again")


async def _invalid(request: HTTPRequest, error: Exception) -> Response:
    """Answer a body or a parameter of a wrong shape."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return refusal(422, f"not JSON at character {first['loc'][-1]}: {first.get('ctx', {}).get('error', '')}")
    return refusal(422, schemas.fault(first, outer=1))


async def _failed(request: HTTPRequest, error: Exception) -> Response:
    return refusal(500, "internal error: the log has more")  # the middleware writes it


async def _refused(request: HTTPRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, str(error.detail), dict(error.headers or {}))
