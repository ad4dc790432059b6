"""Commands that evaluate, select and export models and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from typing_extensions import Doc, Unpack

import vocable as vo
from vocable.cli.command import Outcome, command, quoted
from vocable.cli.options import Measures, Model, Output, Results, SkipBad, Vectors, keywords, texts_of
from vocable.encoding.pooling import PoolingName
from vocable.options import Count, CountOrZero, Device, EvaluationOptions, IdfPower, SelectionOptions, Share


@command("Search", markdown=True)
def evaluate(
    systems: Annotated[
        Sequence[str],
        typer.Argument(metavar="SYSTEM", help="Models, indexes, TREC run files, vectors of encode, bm25, bm25+rm3."),
    ],
    dataset: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="beir:DIR, ir_datasets:NAME or pydocs:#test.")
    ] = None,
    measures: Measures = None,
    bm25: Annotated[bool, Doc("Also evaluate BM25.")] = False,
    grid: Annotated[
        Sequence[str] | None,
        typer.Option(metavar="SETTINGS", help='Settings of searches, as "query_max_terms=5,10 rescore=100".'),
    ] = None,
    figure: Annotated[Path | None, Doc("With --grid: file for quality against FLOPS, .png or .svg.")] = None,
    per_query: Annotated[Path | None, Doc("Tab-separated file of the values of each query.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="JSON file for vocable compare.")] = None,
    time_queries: Annotated[CountOrZero, Doc("Number of queries to time per model, from text to hits.")] = 200,
    skip_bad: SkipBad = 0,
    **options: Unpack[EvaluationOptions],
) -> Outcome:
    """Measure the quality and cost of models and indexes.

    Several systems are each tested against the first (paired t-test). With
    --grid a model encodes once and is searched with many settings (see
    docs/evaluate.md). With --hybrid the spaces of an index are fused; --folds
    tunes their weights. A run needs only judgments: --judgments qrels.txt.

    Example: vocable evaluate vocable-mini --dataset beir:scifact --bm25
    """
    return Outcome(vo.evaluate(**keywords(locals())), [figure, per_query, output])


@command("Search", markdown=True)
def compare(
    results: Annotated[Sequence[str], typer.Argument(metavar="FILE", help="JSON files of vocable evaluate -o.")],
    mixed_conventions: Annotated[bool, Doc("Compare evaluations of different conventions or orders of ties.")] = False,
) -> Outcome:
    """Compare stored evaluations.

    Each is tested against the first (paired t-test).

    Example: vocable compare before.json after.json
    """
    return Outcome(vo.compare(results, mixed_conventions=mixed_conventions))


@command("Search", resumable=True, markdown=True)
def select(
    systems: Annotated[Sequence[str], typer.Argument(metavar="MODEL", help="Models to choose from.")],
    dataset: Annotated[str, typer.Option(metavar="SOURCE", help="beir:DIR, ir_datasets:NAME or pydocs:#test.")],
    measures: Measures = None,
    grid: Annotated[
        Sequence[str] | None,
        typer.Option(metavar="SETTINGS", help='Settings of searches, as "document_max_terms=0,64"; 30 by default.'),
    ] = None,
    max_p95: Annotated[
        str | None, typer.Option(metavar="TIME", help="Longest answer at the 95th percentile, as 20ms or 0.5s.")
    ] = None,
    max_bytes_per_document: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Largest exact index, as 600 or 1.5kB per document.")
    ] = None,
    convention: Annotated[
        Literal["trec_eval", "beir"] | None,
        Doc("trec_eval counts every hit, beir none with the id of its query; beir by default for its collections."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for the figure, all settings and the vectors.")
    ] = None,
    skip_bad: SkipBad = 0,
    **options: Unpack[SelectionOptions],
) -> Outcome:
    """Choose a model and its pruning under a budget.

    Each model encodes the dataset once and is searched with all settings:
    quality, terms, bytes, the time of an answer. --max-p95 and
    --max-bytes-per-document are the budget; the best setting within it is
    printed as a command. An interrupted run resumes when repeated with the
    same -o.

    Example: vocable select vocable-mini my-model --dataset beir:scifact
    """
    return Outcome(vo.select(**keywords(locals())), [output])


@command("Search", markdown=True)
def check_engine(
    place: Annotated[str, typer.Argument(help="A new place, as milvus:check.db, or an index.")],
    model: Annotated[str, Doc("Model that encodes the sample.")] = "vocable-mini",
    corpus: Annotated[str, typer.Option(metavar="SOURCE", help="Documents of the sample.")] = "pydocs:",
    topics: Annotated[str, typer.Option(metavar="SOURCE", help="Queries of the sample.")] = "pydocs:#test",
    documents: Annotated[Count, Doc("Number of documents.")] = 1000,
    queries: Annotated[Count, Doc("Number of queries.")] = 50,
    k: Results = 10,
    device: Device = None,
    skip_bad: SkipBad = 0,
) -> Outcome:
    """Compare an engine with exact search.

    A sample is written to a new place, searched, and removed: score error,
    rank agreement, recall, lost terms and filters, next to the precision that
    the engine declares. For an existing index, all vectors are counted and
    compared with the frequencies that searches use.

    Example: vocable check-engine postgresql://localhost/mine?table=check
    """
    return Outcome(vo.check_engine(**locals()))


LUCENE = (
    "python -m pyserini.index.lucene --collection JsonVectorCollection --input {output}/collection --index DIR "
    "--generator DefaultLuceneDocumentGenerator --impact --pretokenized"
)


@command("Search")
def export(
    vectors: Vectors,
    output: Output,
    format: Annotated[
        Literal["anserini", "ciff"], Doc("Files for Anserini and Pyserini, or one CIFF file.")
    ] = "anserini",
    scale: Annotated[float, Doc("Factor of the weights before they are rounded to whole numbers.")] = 100.0,
    documents: Annotated[
        Sequence[str] | None,
        typer.Option(metavar="VECTORS", help="Vectors of the documents, for queries: apply the IDF of their terms."),
    ] = None,
    query_idf: Annotated[IdfPower, Doc("With --documents: power of the IDF; by default the model's.")] = None,
) -> Outcome:
    """Write stored vectors for other engines.

    For Anserini and Pyserini, or in the Common Index File Format. Weights are
    multiplied and rounded; terms are named by their columns. No other engine
    knows query_idf: with --documents the weights of queries contain it.

    Example: vocable export query-vectors -o topics --documents vectors
    """
    exported = vo.export(list(vectors), output, format=format, scale=scale, documents=documents, query_idf=query_idf)
    return Outcome(exported, [output], LUCENE.format(output=output) if (output / "collection").is_dir() else "")


@command("Search", reads=True, markdown=True)
def export_model(
    model: Model,
    output: Output,
    format: Annotated[Literal["onnx", "openvino"], Doc("Format of the graph.")] = "onnx",
    int8: Annotated[bool, Doc("Round the weights to 8 bits.")] = False,
    texts: Annotated[
        Sequence[str], typer.Option(metavar="SOURCE", help="Texts to compare both on; by default pydocs:.")
    ] = (),
    min_overlap: Annotated[Share, Doc("Least mean share of the largest terms that both have in common.")] = 0.8,
    pooling: Annotated[PoolingName | None, Doc("By default the model's own.")] = None,
    activation: Annotated[
        Literal["relu", "log1p_relu"] | None, Doc("relu or log1p_relu; by default the model's own (docs/head.md).")
    ] = None,
) -> Outcome:
    """Write a model as an ONNX or OpenVINO graph.

    The graph contains the pooling, and Transformers.js runs it, too. Texts are
    encoded with both: the table shows their difference and their speed. A
    graph too far from the model is not written.

    Example: vocable export-model vocable-mini -o for-onnx --int8
    """
    loaded = vo.load(model, pooling=pooling, activation=activation)
    exported = vo.export_model(
        loaded, output, format=format, int8=int8, texts=texts_of(texts) if texts else None, min_overlap=min_overlap
    )
    return Outcome(exported, [output], f"vocable index {quoted(output)} CORPUS -o INDEX")
