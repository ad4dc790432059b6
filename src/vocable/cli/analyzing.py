"""logits, postings and prune: what a model's scores and vectors look like, and smaller vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vocable.cli.options import Json, Mass, MinWeight, Output, TopK, parse_numbers
from vocable.cli.output import print_json, print_table
from vocable.errors import ArgumentError, DataError, ModelError
from vocable.progress import progress

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from vocable.analysis.distributions import LogitStatistics, Postings, Recoverability, TermScores
    from vocable.tables import Table
    from vocable.vectors import VectorsMeta

Vectors = Annotated[Path, typer.Argument(metavar="VECTORS", help="What vocable encode wrote.")]
Kept = Annotated[
    str, typer.Option("--prune", metavar="K,K...", help="Terms kept of a text, measured apart; 0 for all.")
]


def logits(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="A masked language model: a folder or a Hub id.")
    ] = None,
    texts: Annotated[str | None, typer.Argument(metavar="TEXTS", help="Place of texts.")] = None,
    top: Annotated[str, typer.Option(metavar="K,K...", help="Numbers of a token's largest logits.")] = "10,100",
    limit: Annotated[int, typer.Option(help="Texts to read.")] = 8000,
    max_length: Annotated[int, typer.Option(help="Tokens of a text.")] = 128,
    clusters: Annotated[
        int | None, typer.Option(metavar="N", help="Also: do the logits tell N groups of texts apart?")
    ] = None,
    truth: Annotated[str, typer.Option(help="Dense model that makes the groups, or lexical.")] = "lexical",
    vectors: Annotated[
        Path | None, typer.Option(help="Instead of MODEL and TEXTS: what vocable encode or index wrote.")
    ] = None,
    threshold: Annotated[str, typer.Option(metavar="N,N...", help="Of vectors: texts that a term must be in.")] = "1",
    prune: Kept = "0",
    as_json: Json = False,
) -> None:
    """Measure a model's logits, or the weights of vectors.

    Logits of a pre-trained model: how much a term's score varies over the
    tokens, how large a token's best ones are, how many are not negative.

    Example: vocable logits bert-base-uncased texts.txt --clusters 50
    """
    if (vectors is None) == (model is None or texts is None) or (vectors is not None and model is not None):
        raise ArgumentError("give MODEL and TEXTS, or --vectors VECTORS")
    if vectors is not None:
        found = _weights(vectors, parse_numbers(threshold, "--threshold"), parse_numbers(prune, "--prune"))
        _print([one._asdict() for one in found], _weights_table(found), as_json)
        return
    statistics, groups = _logits(
        model or "", texts or "", parse_numbers(top, "--top"), limit, max_length, clusters, truth
    )
    recovered = {} if groups is None else {"clusters": groups._asdict()}
    _print(statistics.to_json() | recovered, _logits_table(statistics, groups), as_json)


def postings(
    place: Annotated[Path, typer.Argument(metavar="PLACE", help="What vocable encode or index wrote.")],
    prune: Kept = "0",
    longest: Annotated[int, typer.Option(help="Longest lists to name.")] = 20,
    model: Annotated[str | None, typer.Option(help="Whose words the terms are, if it has moved.")] = None,
    as_json: Json = False,
) -> None:
    """Measure the postings lists that vectors make.

    Their lengths, over all terms and over those that are used, the longest ones,
    and how many terms a text has.

    Example: vocable postings vectors --prune 0,20,10
    """
    from vocable.analysis.distributions import postings as measure
    from vocable.analysis.distributions import stored_parts

    kept = parse_numbers(prune, "--prune")
    stored = stored_parts(place)
    names = _names(stored.meta, model)
    with progress("postings") as advance:
        parts = (advance(part.shape[0]) or part for part in stored.parts)
        found = measure(parts, top_k=[k or None for k in kept], longest=longest)
    if as_json:
        print_json([one.to_json(names) for one in found])
        return
    for grid in _postings_tables(found):
        print_table(grid)
    for one in found[:1]:
        print("longest lists:", ", ".join(f"{names[t] if names else f'<{t}>'} {n:,}" for t, n in one.longest) or "none")


def prune(
    vectors: Vectors,
    output: Output,
    top_k: TopK = None,
    min_weight: MinWeight = 0.0,
    mass: Mass = None,
    wacky: Annotated[
        Path | None, typer.Option(metavar="SCORES", help="Remove the wackiest expansion terms: of vocable wackiness.")
    ] = None,
    top: Annotated[int | None, typer.Option(metavar="N", help="With --wacky: so many terms.")] = None,
    texts: Annotated[
        str | None, typer.Option(metavar="PLACE", help="With --wacky: what was encoded, whose own terms stay.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="With --wacky: what encoded it, if it has moved.")] = None,
    as_json: Json = False,
) -> None:
    """Keep only the heaviest terms of stored vectors.

    Of queries or of documents. A term stays if it meets every limit, and with
    --wacky if it is none of the wackiest or stands in the text itself.

    Example: vocable prune vectors -o small --top-k 20
    """
    from vocable.storage import refuse_taken
    from vocable.vectors import check_limits
    from vocable.vectors import prune as prune_vectors

    limits: dict[str, Any] = {"top_k": top_k, "min_weight": min_weight, "mass": mass}
    if wacky is not None:
        check_limits(**limits)
        refuse_taken(output)
        limits["then"] = _wacky_pruner(vectors, wacky, top, texts, model)
    elif any(option is not None for option in (top, texts, model)):
        raise ArgumentError("--top, --texts and --model go with --wacky")
    elif top_k is None and mass is None and not min_weight:
        raise ArgumentError("give --top-k, --min-weight, --mass or --wacky")
    before, after = prune_vectors(vectors, output=output, **limits)
    if as_json:
        print_json({"output": str(output), "postings_before": before, "postings": after})
    else:
        print(f"{output}: {after:,} of {before:,} postings kept")


def _wacky_pruner(
    vectors: Path, scores: Path, top: int | None, place: str | None, model: str | None
) -> Callable[[Sequence[str], csr_array], csr_array]:
    """What removes the `top` wackiest terms from each shard."""
    from vocable.analysis.removal import read_wackiest, wacky_pruner
    from vocable.data import Document, read_corpus, read_queries
    from vocable.encoder.load import load
    from vocable.encoder.terms import fingerprint, terms
    from vocable.vectors import read_shards

    if top is None or top < 1 or place is None:
        raise ArgumentError("--wacky needs --top N, at least 1, and --texts PLACE")
    meta = next(read_shards(vectors)).meta
    encoder = load(model or meta.model)
    if fingerprint(terms(encoder)) != meta.vocabulary:
        raise ArgumentError(f"--model {model or meta.model}: the vectors are of another vocabulary")
    found = read_corpus(place)
    if meta.role == "query":
        found = (Document(query.id, query.text) for query in read_queries(place))
    return wacky_pruner(encoder, read_wackiest(scores, encoder)[:top], found, place)


def _logits(
    model: str, place: str, top: list[int], limit: int, max_length: int, clusters: int | None, truth: str
) -> tuple[LogitStatistics, Recoverability | None]:
    from vocable.analysis.distributions import logit_statistics, recoverability
    from vocable.data import read_texts
    from vocable.encoder.fuse import parts
    from vocable.encoder.load import load

    texts = list(islice(read_texts(place), limit))
    if not any(text.strip() for text in texts):
        raise DataError("there is no text to measure logits on", place=place)
    mlm, tokenizer, *_ = parts(load(model))
    with progress("logits", len(texts)) as advance:
        found = logit_statistics(mlm, tokenizer, texts, top=top, max_length=max_length, advance=advance)
    if clusters is None:
        return found, None
    with progress("clusters", len(texts)) as advance:
        groups = recoverability(mlm, tokenizer, texts, clusters, truth=truth, max_length=max_length, advance=advance)
    return found, groups


def _weights(place: Path, thresholds: list[int], kept: list[int]) -> list[TermScores]:
    from vocable.analysis.distributions import stored_parts, term_scores

    return term_scores(stored_parts(place).parts, thresholds, top_k=[k or None for k in kept])


def _names(meta: VectorsMeta | None, model: str | None) -> list[str] | None:
    """The words of the terms; None where the model that made the vectors is not at hand."""
    from vocable.encoder.load import load
    from vocable.encoder.terms import fingerprint, terms

    if model is None and meta is None:
        return None
    try:
        names = terms(load(model or (meta.model if meta else "")))
    except ModelError:
        if model is not None:
            raise
        return None
    if meta is not None and fingerprint(names) != meta.vocabulary:
        if model is not None:
            raise ArgumentError(f"--model {model}: the vectors are of another vocabulary")
        return None
    return names


def _print(values: object, grid: Table, as_json: bool) -> None:
    if as_json:
        print_json(values)
    else:
        print_table(grid)


def _logits_table(found: LogitStatistics, groups: Recoverability | None) -> Table:
    from vocable.tables import Table

    rows = [["logit-score-std", f"{found.logit_score_std:.4f}"]]
    rows += [[f"doc-score-avg@{k}", f"{value:.4f}"] for k, value in found.doc_score_avg.items()]
    rows += [[f"doc-score-std@{k}", f"{value:.4f}"] for k, value in found.doc_score_std.items()]
    rows += [["non-neg-terms-avg", f"{found.non_neg_terms_avg:,.1f}"]]
    rows += [["non-neg-terms-std", f"{found.non_neg_terms_std:,.1f}"]]
    if groups is not None:
        rows += [[f"recoverability of {groups.clusters} clusters", f"{groups.recoverability:.4f}"]]
        rows += [["variance within clusters", f"{groups.inner_variance:.4f}"]]
        rows += [["its share of all variance", f"{groups.inner_share:.4f}"]]
    title = f"{found.texts:,} texts, {found.tokens:,} tokens, {found.terms:,} terms"
    return Table(title, ["statistic", "value"], rows)


def _weights_table(found: list[TermScores]) -> Table:
    from vocable.tables import NONE, Table

    rows = [
        [
            str(one.top_k or 0),
            f"{one.threshold:,}",
            f"{one.logit_cnt:,}",
            NONE if one.logit_score_std is None else f"{one.logit_score_std:.4f}",
        ]
        for one in found
    ]
    return Table("", ["kept", "threshold", "logit-cnt", "logit-score-std"], rows)


def _postings_tables(found: list[Postings]) -> list[Table]:
    from vocable.tables import Table

    lengths = []
    for one in found:
        for which, spread in (("all", one.all_terms), ("used", one.used_terms)):
            figures = [f"{value:,.2f}" for value in (spread.mean, spread.variance, spread.std)]
            lengths.append([str(one.top_k or 0), which, f"{spread.terms:,}", *figures, f"{spread.gini:.3f}"])
    sizes = [
        [
            str(one.top_k or 0),
            *(f"{one.l0[name]:,.2f}" for name in ("mean", "std")),
            *(f"{value:,.0f}" for name, value in one.l0.items() if name.startswith("p")),
            f"{one.postings:,}",
            f"{one.bytes / 1e6:,.2f}",
        ]
        for one in found
    ]
    percentiles = [name for name in found[0].l0 if name.startswith("p")]
    return [
        Table("length of a postings list", ["kept", "terms", "number", "mean", "var", "std", "gini"], lengths),
        Table(
            f"terms of a text, {found[0].texts:,} texts",
            ["kept", "L0 mean", "L0 std", *percentiles, "postings", "index MB"],
            sizes,
        ),
    ]
