"""Commands that evaluate, select, export and analyze models and vectors."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import vocable as vo
from vocable.cli.command import Command, Outcome
from vocable.cli.inputs import texts_of
from vocable.cli.output import quoted
from vocable.encoding.hub import BUILT_IN_MODEL
from vocable.encoding.runtimes import torch_library
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
    if torch_library().model_kind(model) == "dense":
        return _export_dense(model, output, texts=opened, **loading, **given)
    exported = vo.export_model(vo.load(model, **loading), output, texts=opened, **given)
    return Outcome(exported, f"vocable index {quoted(output)} CORPUS -o INDEX")


def _export_dense(
    model: str, output: Path, *, texts: Iterable[str] | None, int8: bool = False, **others: Any
) -> Outcome:
    from vocable.encoding.dense_models import load_dense
    from vocable.torch_models.export_dense import export_dense

    if others:
        raise ArgumentError(f"--{min(others).replace('_', '-')} is not for a dense model: {model}")
    dense: Any = load_dense(model)
    exported = export_dense(dense, output, int8=int8, texts=texts)
    return Outcome(exported, f"vocable index {BUILT_IN_MODEL} CORPUS -o INDEX --dense {quoted(output)}")


EVALUATION_COMMANDS = (
    Command("evaluate", "systems...", "vocable-mini --dataset beir:scifact --bm25", traits="markdown"),
    Command("compare", "results...", "before.json after.json", traits="markdown"),
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
        traits="resumes",
        sources="corpus queries",
    ),
    Command("ablate", "model datasets...", "vocable-mini beir:scifact -o removed", traits="named resumes"),
)
