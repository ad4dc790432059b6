from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from vocable.data import read_corpus
from vocable.errors import DataError

pytest.importorskip("mammoth")


def test_docx_files_have_headings_and_tables(tmp_path: Path) -> None:
    namespace = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    heading = '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Lamps</w:t></w:r></w:p>'
    cells = "".join(f"<w:tc><w:p><w:r><w:t>{word}</w:t></w:r></w:p></w:tc>" for word in ("oil", "wax"))
    body = f"{heading}<w:p><w:r><w:t>They burn.</w:t></w:r></w:p><w:tbl><w:tr>{cells}</w:tr></w:tbl>"
    types = '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="xml" '
    relation = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    with ZipFile(tmp_path / "a.docx", "w") as file:
        file.writestr("[Content_Types].xml", f'{types}ContentType="application/xml"/></Types>')
        file.writestr(
            "_rels/.rels",
            '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
            f'<Relationship Id="r1" Type="{relation}" Target="word/document.xml"/></Relationships>',
        )
        file.writestr("word/document.xml", f"<w:document {namespace}><w:body>{body}</w:body></w:document>")
    [document] = read_corpus(tmp_path)
    assert (document.title, document.id) == ("Lamps", "a.docx")
    assert document.text.split() == ["They", "burn.", "oil", "|", "wax"]
    (tmp_path / "a.docx").write_bytes(b"no zip")
    with pytest.raises(DataError, match=r"a\.docx:1: not a readable DOCX"):
        list(read_corpus(tmp_path))
