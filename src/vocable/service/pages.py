"""The files of the search page, and headers that keep browsers from loading anything else into it."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse

FOLDER = Path(__file__).parent / "page"
FILES = {"/": "index.html"} | {f"/{path.name}": path.name for path in FOLDER.iterdir()}  # public: these need no token
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # a newer version shows at once
}


def add_page(app: FastAPI) -> None:
    """Add an endpoint for each file."""

    def add(path: str, name: str) -> None:  # a function, so that each endpoint keeps its own name
        @app.get(path, include_in_schema=False)
        async def file() -> FileResponse:
            return FileResponse(FOLDER / name, headers=HEADERS)

    for path, name in FILES.items():
        add(path, name)
