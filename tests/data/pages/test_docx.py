from __future__ import annotations

from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from vocable.data import BadLines, read_corpus
from vocable.data.pages.blocks import PageError
from vocable.data.pages.docx import docx_page
from vocable.errors import DataError

pytest.importorskip("mammoth")

NAMESPACE = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
DOCUMENT = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
PARAGRAPH = "<w:p><w:r><w:t>They burn.</w:t></w:r></w:p>"


def docx(path: Path, body: str, **parts: str) -> None:
    """Write a DOCX file with a body, and with other texts for `relations` and `document`."""
    relations = f'<Relationship Id="r1" Type="{DOCUMENT}" Target="word/document.xml"/>'
    types = '<Default Extension="xml" ContentType="application/xml"/>'
    with ZipFile(path, "w", ZIP_DEFLATED) as file:
        file.writestr("[Content_Types].xml", f'<Types xmlns="{PACKAGE}/content-types">{types}</Types>')
        whole = f'<Relationships xmlns="{PACKAGE}/relationships">{relations}</Relationships>'
        file.writestr("_rels/.rels", parts.get("relations", whole))
        document = f"<w:document {NAMESPACE}><w:body>{body}</w:body></w:document>"
        file.writestr("word/document.xml", parts.get("document", document))


def test_docx_files_have_headings_and_tables(tmp_path: Path) -> None:
    heading = '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Lamps</w:t></w:r></w:p>'
    cells = "".join(f"<w:tc><w:p><w:r><w:t>{word}</w:t></w:r></w:p></w:tc>" for word in ("oil", "wax"))
    docx(tmp_path / "a.docx", f"{heading}{PARAGRAPH}<w:tbl><w:tr>{cells}</w:tr></w:tbl>")
    [document] = read_corpus(tmp_path)
    assert (document.title, document.id) == ("Lamps", "a.docx")
    assert document.text.split() == ["They", "burn.", "oil", "|", "wax"]


NESTED = "<w:sdt><w:sdtContent>" * 3000 + PARAGRAPH + "</w:sdtContent></w:sdt>" * 3000
ENTITIES = '<!DOCTYPE a [<!ENTITY a "a"><!ENTITY b "&a;&a;">]><a>&b;</a>'
DAMAGED = {  # bodies and other parts of files that mammoth's parsers fail on
    "relations that are not XML": ("", {"relations": "<x"}),
    "an empty document": ("", {"document": ""}),
    "a document that is not XML": ("", {"document": "<w:document"}),
    "entities": ("", {"document": ENTITIES}),
    "a deep document": (NESTED, {}),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    body, parts = DAMAGED[name]
    docx(tmp_path / "a.docx", body, **parts)
    with pytest.raises(PageError):
        docx_page(tmp_path / "a.docx")


def test_flipped_bits_end_neither_the_folder_nor_the_process(tmp_path: Path) -> None:
    docx(tmp_path / "a.docx", PARAGRAPH * 50)
    raw = bytearray((tmp_path / "a.docx").read_bytes())
    for place in range(40, 140):
        raw[place] ^= 0x10
    (tmp_path / "a.docx").write_bytes(raw)
    (tmp_path / "b.docx").write_bytes(b"no zip")
    (tmp_path / "c.md").write_text("# Lamps", encoding="utf-8")
    bad = BadLines(limit=2)
    assert [document.id for document in read_corpus(tmp_path, bad=bad)] == ["c.md#lamps"]
    assert bad.count == 2
    with pytest.raises(DataError):
        list(read_corpus(tmp_path))


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    docx(tmp_path / "a.docx", PARAGRAPH * 300_000)
    with pytest.raises(PageError):
        docx_page(tmp_path / "a.docx")
