"""The fields of published documents that become filters."""

from __future__ import annotations

from pathlib import Path

from vocable.data import Document
from vocable.publishing.documents import write_fields
from vocable.publishing.files import SiteFiles


def test_fields_with_a_value_of_its_own_in_most_pages_are_no_filters(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    documents = [
        Document(
            f"{page}#{section}",
            "A text.",
            "A title",
            {
                "file": f"{page}.md",
                "date": f"2026-01-{page:02d}",
                "lang": "de" if page % 2 else "en",
                "year": page // 10,
            },
        )
        for page in range(1, 31)
        for section in range(4)
    ]
    fields = write_fields(SiteFiles(tmp_path, None), documents)
    assert [(field.name, field.values) for field in fields] == [("lang", ["de", "en"]), ("year", [0, 1, 2, 3])]
    few = write_fields(SiteFiles(tmp_path, None), documents[:20])  # five pages with five dates
    assert "date" in [field.name for field in few]
