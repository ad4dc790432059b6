"""Commands that evaluate, select, export and analyze models and vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import vocable as vo
from vocable.cli.command import Command, Outcome
from vocable.cli.inputs import texts_of
from vocable.cli.output import quoted
from vocable.cli.repeated import once
from vocable.encoding.hub import BUILT_IN_MODEL
from vocable.encoding.torch_library import torch_library
from vocable.errors import ArgumentError, require_extra

LUCENE = (
    "python -m pyserini.index.lucene --collection JsonVectorCollection --input {output}/collection --index DIR "
    "--generator DefaultLuceneDocumentGenerator --impact --pretokenized"
)


def _export(**given: Any) -> Outcome:
    exported, output = vo.export(**given), given["output"]
    return Outcome(exported, LUCENE.format(output=output) if Path(output, "collection").is_dir() else "")


def _export_model(
    model: str, output: Path, *, loading: dict[str, Any], texts: list[str] | None = None, **given: Any
) -> Outcome:
    require_extra("sentence_transformers", "train")
    opened = texts_of(texts) if texts else None
    if (kind := torch_library().model_kind(model)) in ("dense", "cross"):
        return _export_other(kind, model, output, texts=opened, **loading, **given)
    exported = vo.export_model(vo.load(model, **loading), output, texts=opened, **given)
    return Outcome(exported, f"vocable index {quoted(output)} CORPUS -o INDEX")


def _export_other(
    kind: str, model: str, output: Path, *, texts: Iterable[str] | None, int8: bool = False, **others: Any
) -> Outcome:
    """Export a dense model or a cross encoder."""
    from vocable.collection.rerank import load_reranker
    from vocable.encoding.dense_models import load_dense
    from vocable.torch_models.export_cross import export_cross
    from vocable.torch_models.export_dense import export_dense

    if others:
        raise ArgumentError(f"--{min(others).replace('_', '-')} is not for a {kind} model: {model}")
    if kind == "cross":
        cross: Any = load_reranker(model)
        reranks = f'vocable search INDEX "your question" --rerank {quoted(output)}'
        return Outcome(export_cross(cross, output, int8=int8, texts=texts), reranks)
    dense: Any = load_dense(model)
    exported = export_dense(dense, output, int8=int8, texts=texts)
    return Outcome(exported, f"vocable index {BUILT_IN_MODEL} CORPUS -o INDEX --dense {quoted(output)}")


EVALUATION_COMMANDS = (
    Command("evaluate", "systems...", "vocable-mini --dataset beir:scifact --bm25", traits="markdown"),
    Command("compare", "results...", "before.json after.json", traits="markdown"),
    Command("bakeoff", "index", "my-index --testset searches --also pagefind.json", traits="markdown"),
    Command("select", "systems...", "vocable-mini my-model --dataset beir:scifact", traits="resumes markdown"),
    Command("export", "vectors...", "query-vectors -o topics --documents vectors", _export),
    Command(
        "export-model",
        "model",
        "vocable-mini -o for-onnx --int8",
        _export_model,
        "loads reads markdown",
        without="new_head special_terms device",
        sources="texts",
    ),
)


def _analyze_logits(texts: list[str], **given: Any) -> Outcome:
    return Outcome(vo.analyze_logits(texts=texts_of(texts), **given))


def _kept_wackiness(given: Mapping[str, Any]) -> object:
    from vocable.wackiness.report import WackinessReport

    return WackinessReport.read(given["output"])


def _expanding_models(given: Mapping[str, Any]) -> list[str]:
    """Return the models among models and expanders."""
    from vocable.evaluation.expanders import expander_class

    return [name for name in given["models"] if expander_class(name, given.get("role", "query")) is None]


def _kept_ablation(given: Mapping[str, Any]) -> object:
    from vocable.wackiness.ablation_report import AblationReport

    return AblationReport.read(given["output"])


ANALYSIS_COMMANDS = (
    Command(
        "analyze-logits",
        "model texts...",
        "bert-base-uncased texts.txt --clusters 50",
        _analyze_logits,
        "named reads",
        sources="texts",
    ),
    Command("analyze-weights", "vectors...", "vectors --min-count 2,10"),
    Command("analyze-postings", "vectors...", "vectors --max-terms all,20,10"),
    Command(
        "measure-wackiness",
        "models...",
        "MODEL --queries q.tsv --corpus d.tsv -o w",
        once("measure_wackiness", _kept_wackiness, models=_expanding_models),
        traits="resumes",
        sources="corpus queries",
    ),
    Command(
        "ablate",
        "model datasets...",
        "vocable-mini beir:scifact -o removed",
        once("ablate", _kept_ablation),
        "named resumes",
    ),
)
