"""The examples of the page run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from vocable.collection.collection import Collection

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
EXAMPLES = {  # what is imported, and the package that it needs
    "langchain import": "langchain_core",
    "llama_index import LlamaIndexRetriever": "llama_index.core",
    "haystack import HaystackRetriever": "haystack",
    "pyterrier import": "pyterrier",
    "langchain_qdrant import": "langchain_qdrant",
    "langchain_milvus import": "langchain_milvus",
    "llama_index import LlamaIndexEmbedding": "llama_index.vector_stores.qdrant",
    "haystack import HaystackDocumentEmbedder": "haystack_integrations.document_stores.qdrant",
    "fastembed import": "qdrant_client",
}


@pytest.mark.filterwarnings("ignore:Payload indexes have no effect")  # of Qdrant in this process
@pytest.mark.parametrize("imported", EXAMPLES)
def test_each_example_of_the_integrations_page_runs(
    imported: str,
    collection: Collection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip(EXAMPLES[imported])
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    [block] = [block for block in blocks if f"vocable.integrations.{imported}" in block]
    (tmp_path / "my-index").symlink_to(collection.place, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(block, names)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
