"""Commands that evaluate, select and export models and vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import vocable as vo
from vocable.cli.command import Command, Outcome
from vocable.cli.inputs import texts_of
from vocable.cli.output import quoted

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
    opened, loaded = texts_of(texts) if texts else None, vo.load(model, **loading)
    exported = vo.export_model(loaded, output, texts=opened, **given)
    return Outcome(exported, f"vocable index {quoted(output)} CORPUS -o INDEX")


EVALUATION_COMMANDS = (
    Command("evaluate", "systems...", "vocable-mini --dataset beir:scifact --bm25", traits="markdown"),
    Command("compare", "results...", "before.json after.json", traits="markdown"),
    Command("select", "systems...", "vocable-mini my-model --dataset beir:scifact", traits="resumes markdown"),
    Command("check-engine", "place", "postgresql://localhost/mine?table=check", traits="markdown"),
    Command("export", "vectors...", "query-vectors -o topics --documents vectors", _export),
    Command(
        "export-model",
        "model",
        "vocable-mini -o for-onnx --int8",
        _export_model,
        "loads reads markdown",
        without="new_head special_terms device",
    ),
)
