"""Commands that search and measure: index, search, explain, encode, prune, evaluate, compare, check-engine, export,
export-model."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer

from vocable import HOMES, imported
from vocable.cli.declare import (
    Command,
    Loading,
    MaxLength,
    Measures,
    Model,
    Output,
    Reading,
    print_json,
    read_text,
    show,
)
from vocable.cli.signature import REQUIRED
from vocable.errors import ArgumentError
from vocable.options import Count, Share
from vocable.tables import line_width, shortened

PLACES = "A folder, exact:FOLDER for an index that cannot change, or an engine's address (docs/search.md)."
BATCH = 256  # queries that are encoded together

Corpus = Annotated[
    str, typer.Argument(metavar="CORPUS", help="A file, beir:DIR, ir_datasets:NAME, hf:NAME, pydocs: or - (stdin).")
]
Place = Annotated[str, typer.Argument(help="A folder that vocable index made, or another place of an index.")]
Wacky = Annotated[
    Path | None,
    typer.Option(metavar="SCORES", help="Mark the wacky terms: scores that vocable measure-wackiness wrote."),
]
WackyShare = Annotated[Share | None, typer.Option(help="Share of the scored terms that is wacky, 0.1 by default.")]
Markdown = Annotated[bool, typer.Option(help="Print a markdown table.")]


class Encode(Command):
    """Encode a corpus into Parquet files of vectors.

    Repeated after a kill, it goes on where it stopped.

    Example: vocable encode vocable-mini corpus.jsonl -o vectors
    """

    python_only: ClassVar[tuple[str, ...]] = ("name",)
    resumable: ClassVar[bool] = True
    next_step: ClassVar[str] = "vocable index {output} CORPUS -o INDEX"
    model: Model
    texts: Corpus
    output: Output = REQUIRED
    role: Annotated[Literal["query", "document"], typer.Option(help="Encode as queries or as documents.")]
    max_length: MaxLength

    def following(self) -> str:
        """Documents can be indexed, when they are all there."""
        return self.next_step if self.role == "document" and self.shard is None else ""


class Index(Command):
    """Encode a corpus and make it searchable.

    Repeated after a kill, it goes on where it stopped.

    Example: vocable index vocable-mini pydocs: -o python-docs --bm25
    """

    resumable: ClassVar[bool] = True
    next_step: ClassVar[str] = 'vocable search {output} "your question"'
    model: Annotated[str, typer.Argument(help="vocable-mini, a folder, a Hub id, or what vocable encode wrote.")]
    corpus: Corpus
    output: Annotated[str, typer.Option("-o", "--output", metavar="PLACE", help=PLACES)]
    vectors: Annotated[
        list[str] | None,
        typer.Option(metavar="VECTORS", help="Further shards that vocable encode wrote."),
    ] = None
    max_length: MaxLength

    def arguments(self) -> dict[str, Any]:
        """The fields, all shards as one model."""
        given = super().arguments()
        further = given.pop("vectors")
        return given | {"model": [self.model, *further] if further else self.model}


class Add(Command):
    """Add documents, or replace those with their ids.

    Repeated after a kill, it goes on where it stopped: what is there unchanged is left as it is.

    Example: vocable add my-index more-documents.jsonl
    """

    index: Place
    corpus: Corpus


class Delete(Command):
    """Delete documents of an index.

    Example: vocable delete my-index doc-17 doc-18
    """

    index: Place
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Ids of documents; - reads one per line from stdin.")]

    def arguments(self) -> dict[str, Any]:
        """The values, ids from standard input among them."""
        given = super().arguments()
        if "-" in self.ids:
            typed = list(imported("vocable.data.read:typed_ids")())
            given["ids"] = [*(one for one in self.ids if one != "-"), *typed]
        return given


class Search(Reading):
    """Search an index, or that of a service by its address.

    Example: vocable search python-docs "copy a file" --explain
    """

    index: Annotated[
        str, typer.Argument(help="A folder that vocable index made, another place of an index, or http://HOST:PORT.")
    ]
    query: Annotated[
        list[str] | None,
        typer.Argument(help="Queries, in quotes if of several words; - reads one per line from stdin."),
    ] = None
    queries: Annotated[str | None, typer.Option(metavar="SOURCE", help="Read queries from here.")] = None
    k: Annotated[int, typer.Option("-k", "--k")]
    wacky: Wacky = None
    wacky_share: WackyShare = None
    run: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --queries: write a TREC run, print no hits.")
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per query, a line each.")] = False

    def call(self) -> Iterator[Any]:
        """The answers; a line of stdin is answered before the next one is read."""
        if (self.queries is None) == (not self.query):
            raise ArgumentError("give queries, - for stdin, or --queries SOURCE: one of the three")
        if self.run is not None and (self.queries is None or self.explain or self.as_json):
            raise ArgumentError("--run goes with --queries and without --explain and --json")
        if self.wacky is not None and not self.explain:
            raise ArgumentError("--wacky marks the terms that --explain shows: give both")
        if self.run is not None:
            imported("vocable.storage:check_file")(self.run)
        if not Path(self.index).exists() and self.query and Path(self.query[-1], "settings.json").exists():
            raise ArgumentError(f"the index {self.query[-1]} comes first, then the queries")
        settings = super().arguments()
        for name in ("index", "query", "queries"):
            del settings[name]
        if self.index.startswith(("http://", "https://")):
            yield from imported("vocable.service.client:search_service")(self.index, self._queries(), **settings)
            return
        how = {name: settings.pop(name) for name in ("allow_changed_model", "device") if name in settings}
        opened = imported("vocable.retrieval.verbs:open_index")(self.index, **how)
        del settings["wacky_share"]
        if self.wacky is not None or self.wacky_share is not None:
            settings["wacky"] = _wacky_terms(self.wacky, self.wacky_share, opened.loaded_model)
        queries = self._queries()
        # A run is one file, so that its queries are searched together.
        size = None if self.run is not None else 1 if self.query == ["-"] else BATCH
        while some := list(islice(queries, size)):
            if some[0].text:
                yield from imported(HOMES["search"])(opened, some, **settings)
            else:  # a blank line of stdin, which is alone
                yield imported("vocable.retrieval.records:Answer")(some[0], ())

    def show(self, result: Iterator[Any]) -> None:
        """Print each answer as it comes."""
        alone, count = self.query is not None and len(self.query) == 1 and self.query != ["-"], 0
        for answer in result:
            count += 1
            if self.as_json:
                print_json(answer.to_json(), indent=None)
            elif self.run is None:
                question = "" if alone else f"{shortened(answer.query.text, line_width())}\n"
                show(("" if count == 1 else "\n") + question + str(answer))
            sys.stdout.flush()
        if self.run is not None:
            show(f"{count:,} queries\nwritten: {self.run}")

    def _queries(self) -> Iterator[Any]:
        query = imported("vocable.data:Query")
        if self.queries is not None:
            yield from imported("vocable.data:read_queries")(self.queries)
            return
        if self.query == ["-"]:
            yield from imported("vocable.data.read:typed_queries")()
            return
        texts = enumerate(self.query or [], start=1)
        yield from (query(str(number), text) for number, text in texts if text)


class Explain(Command):
    """Show which terms make a score.

    Without a document: the terms that a query becomes.

    Example: vocable explain vocable-mini "fast car" "A quick automobile"
    """

    loading: ClassVar[tuple[str, ...]] = ("device",)
    model: Model
    query: Annotated[str, typer.Argument(help="A query, or @FILE.")]
    document: Annotated[str | None, typer.Argument(help="A document's text, or @FILE.")]
    wacky: Wacky = None
    wacky_share: WackyShare = None

    def call(self) -> Any:
        """Explain with the loaded model."""
        texts = [read_text(text) for text in (self.query, self.document) if text is not None]
        model = imported("vocable.encoder.load:load")(self.model, device=self.device)
        return imported(HOMES["explain"])(model, *texts, wacky=_wacky_terms(self.wacky, self.wacky_share, model))


def _wacky_terms(scores: Path | None, share: float | None, model: Any) -> Any:
    """The terms to mark; None where there are no scores."""
    if scores is None:
        if share is not None:
            raise ArgumentError("--wacky-share is of the scores in --wacky FILE: give both")
        return None
    names = imported("vocable.encoder.terms:terms")(model)
    return imported("vocable.wackiness.measure:read_wacky_terms")(scores, names, **({"share": share} if share else {}))


class Evaluate(Command):
    """Measure the quality and cost of models, runs and indexes.

    With several, each is tested against the first (paired t-test). With --grid
    a model encodes once and is searched in many ways (see docs/search.md).
    With --hybrid the spaces of an index are fused; --folds tunes the weights.
    For runs judgments alone are enough: --judgments qrels.txt.

    Example: vocable evaluate vocable-mini --dataset beir:scifact --bm25
    """

    writes: ClassVar[tuple[str, ...]] = ("figure", "per_query", "output")
    systems: Annotated[
        list[str],
        typer.Argument(metavar="SYSTEM", help="Models, indexes, TREC run files, vectors of encode, bm25, bm25+rm3."),
    ]
    dataset: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="beir:DIR, ir_datasets:NAME or pydocs:#test.")
    ] = None
    measures: Measures
    judgments: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="Instead: judgments alone, as qrels.txt; enough for runs.")
    ] = None
    queries: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="With --judgments: queries, as TREC topics; enough for an index."),
    ] = None
    corpus: Annotated[str | None, typer.Option(metavar="SOURCE", help="With both: the documents.")] = None
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="SETTINGS", help='Ways to search, as "query_max_terms=5,10 rescore=100".'),
    ]
    output: Annotated[Path | None, typer.Option("-o", "--output", help="JSON file for vocable compare.")]
    max_length: MaxLength
    markdown: Markdown = False


class Compare(Command):
    """Set evaluations side by side.

    Each is tested against the first (paired t-test).

    Example: vocable compare first.json second.json
    """

    results: Annotated[list[str], typer.Argument(metavar="FILE", help="JSON files that vocable evaluate -o wrote.")]
    markdown: Markdown = False


class Select(Command):
    """Select a model and a pruning within a budget.

    Models are measured on a dataset, whole and pruned: quality, terms, bytes,
    the time of an answer. --max-p95 and --max-bytes-per-document are the
    budget; the best setting within it is printed with the command to use it.
    An interrupted run resumes when repeated with the same -o.

    Example: vocable select vocable-mini my-model --dataset beir:scifact
    """

    resumable: ClassVar[bool] = True
    systems: Annotated[list[str], typer.Argument(metavar="MODEL", help="Models: folders or Hub ids.")]
    dataset: Annotated[str, typer.Option(metavar="SOURCE", help="beir:DIR, ir_datasets:NAME or pydocs:#test.")]
    measures: Measures
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="SETTINGS", help='Ways to search, as "document_max_terms=0,64"; 30 of them by default.'),
    ]
    max_p95: Annotated[str | None, typer.Option(metavar="TIME")]
    max_bytes_per_document: Annotated[str | None, typer.Option(metavar="BYTES")]
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for the figure, all settings and the vectors.")
    ]
    max_length: MaxLength
    markdown: Markdown = False


class CheckEngine(Command):
    """Compare an engine with exact search.

    A sample is written to a place where there is nothing yet, searched, and
    removed: score error, rank agreement, recall, lost terms and filters,
    beside the precision that the engine declares.

    Example: vocable check-engine postgresql://localhost/mine?table=check
    """

    place: Annotated[str, typer.Argument(help="As qdrant+http://localhost:6333/check or milvus:check.db.")]
    model: Annotated[str, typer.Option(help="What encodes the sample.")] = "vocable-mini"
    corpus: Annotated[str, typer.Option(metavar="SOURCE")]
    topics: Annotated[str, typer.Option(metavar="SOURCE")]
    k: Annotated[int, typer.Option("-k", "--k", min=1)]
    markdown: Markdown = False


class Prune(Reading):
    """Keep only the heaviest terms of stored vectors.

    Of queries or of documents. A term stays if it meets every limit, and with
    --wacky if it is none of the wackiest or stands in the text itself.

    Example: vocable prune vectors -o small --max-terms 20
    """

    python_only: ClassVar[tuple[str, ...]] = ("then",)
    vectors: Annotated[list[str], typer.Argument(help="What vocable encode wrote: a folder, or several shards.")]
    output: Output = REQUIRED
    wacky: Annotated[
        Path | None,
        typer.Option(
            metavar="SCORES", help="Remove the wackiest expansions, by scores that vocable measure-wackiness wrote."
        ),
    ] = None
    wackiest: Annotated[Count | None, typer.Option(metavar="N", help="With --wacky: so many terms.")] = None
    texts: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="With --wacky: what was encoded, whose own terms stay."),
    ] = None
    model: Annotated[str | None, typer.Option(help="With --wacky: what encoded it, if it has moved.")] = None

    def arguments(self) -> dict[str, Any]:
        """The values, the wacky terms as a function that removes them."""
        if self.wacky is not None:
            if self.wackiest is None or self.texts is None:
                raise ArgumentError("--wacky needs --wackiest N and --texts SOURCE")
        elif any(value is not None for value in (self.wackiest, self.texts, self.model)):
            raise ArgumentError("--wackiest, --texts and --model go with --wacky")
        elif self.max_terms is None and self.mass is None and not self.min_weight:
            raise ArgumentError("give --max-terms, --min-weight, --mass or --wacky")
        given = super().arguments()
        wacky = {name: given.pop(name) for name in ("wackiest", "texts", "model")}
        if (scores := given.pop("wacky")) is not None:
            given["then"] = imported("vocable.wackiness.ablate:WackyPruner")(self.vectors, scores, **wacky)
        return given


class Export(Command):
    """Write stored vectors for other engines.

    For Anserini and Pyserini, or in the Common Index File Format. Weights are
    multiplied and rounded; terms are named by their columns. No other engine
    knows query_idf: with --documents the weights of queries contain it.

    Example: vocable export query-vectors -o topics --documents vectors
    """

    next_step: ClassVar[str] = (
        "python -m pyserini.index.lucene --collection JsonVectorCollection --input {output}/collection --index DIR "
        "--generator DefaultLuceneDocumentGenerator --impact --pretokenized"
    )
    vectors: Annotated[list[str], typer.Argument(help="What vocable encode wrote; several shards.")]
    output: Output
    documents: Annotated[
        list[str] | None,
        typer.Option(metavar="VECTORS", help="Vectors of the documents, for queries: apply the IDF of their terms."),
    ]

    def following(self) -> str:
        """The index of Lucene, for documents."""
        return self.next_step if (self.output / "collection").is_dir() else ""


class ExportModel(Reading, Loading):
    """Write a model as an ONNX or OpenVINO graph.

    Its pooling is inside, and Transformers.js runs it, too. Texts are encoded
    with both: the table says how far they are apart and how fast each is, and
    what is too far from the model is not written.

    Example: vocable export-model vocable-mini -o for-onnx --int8
    """

    loading: ClassVar[tuple[str, ...]] = ("pooling", "activation")
    next_step: ClassVar[str] = "vocable index {output} CORPUS -o INDEX"
    output: Output
    texts: Annotated[list[str], typer.Option(metavar="SOURCE")] = []
    markdown: Markdown = False


COMMANDS: list[type[Command]] = [
    Index,
    Add,
    Delete,
    Search,
    Explain,
    Encode,
    Prune,
    Evaluate,
    Compare,
    Select,
    CheckEngine,
    Export,
    ExportModel,
]
