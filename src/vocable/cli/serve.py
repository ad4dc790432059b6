"""The commands that serve an index, and publish it as static files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from annotated_types import Ge, Le
from typing_extensions import Doc, Unpack

import vocable as vo
from vocable.cli.command import Outcome, command, quoted
from vocable.cli.options import Place, keywords
from vocable.options import Count
from vocable.service import ServiceOptions


@command("Serve", json=False)
def serve(
    index: Place,
    model: Annotated[str | None, Doc("The model of the index, if it has moved.")] = None,
    host: Annotated[str, Doc("Address to listen on; 0.0.0.0 for all of the machine's.")] = "127.0.0.1",
    port: Annotated[int, Ge(0), Le(65535), Doc("Port to listen on; 0 for a free one.")] = 8000,
    workers: Annotated[Count, Doc("Number of processes; more than one for an index that cannot change.")] = 1,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File of the bearer token of requests; or VOCABLE_TOKEN.")
    ] = None,
    **options: Unpack[ServiceOptions],
) -> None:
    """Serve an index over HTTP.

    A search page at /; search, explanations, sparse embeddings in the format
    of text-embeddings-inference, changes, and tools for agents (MCP, at /mcp, or
    on stdin and stdout with --mcp), until Ctrl-C. The log is JSON on stderr.

    Example: vocable serve my-index --port 8000
    """
    vo.serve(**keywords(locals()))


@command("Serve")
def publish(
    index: Place,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="New folder, or the folder of an earlier call to update.")
    ],
    title: Annotated[str | None, Doc("Heading of the page; by default the earlier call's, or Search.")] = None,
    bm25: Annotated[bool, Doc("Also publish the words of the documents, for hybrid search.")] = True,
    characters: Annotated[Count, Doc("Length of a document's text that is shown.")] = 500,
    encoder: Annotated[
        Path | None,
        typer.Option(metavar="RUNTIME", help="The npm package onnxruntime-web: readers may load the model itself."),
    ] = None,
) -> Outcome:
    """Write an index as files that a browser searches.

    Any web server can deliver them, without running a program or a model:
    queries are looked up. The index must be by vocable-mini-doc, vocable-mini
    or a model of make-inference-free. Repeat it after the index has changed.

    Example: vocable publish my-index -o site
    """
    published = vo.publish(index, output, title=title, bm25=bm25, characters=characters, encoder=encoder)
    return Outcome(published, following=f"python3 -m http.server --directory {quoted(output)}")
