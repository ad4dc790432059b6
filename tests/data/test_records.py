from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.data import Document
from vocable.data.texts import as_text


@given(st.lists(st.from_regex(r"[aé](x| y)?", fullmatch=True), min_size=1, max_size=5))
def test_a_section_is_encoded_and_counted_after_the_headings_of_its_path(headings: list[str]) -> None:
    section = Document("a", "The text.", headings[-1], {"path": " > ".join(headings)})
    assert section.full == " ".join([*headings, "The text."])
    assert section.weighed(2) == " ".join([*headings, *headings, "The text."])
    assert section._replace(title="").full == "The text."


@pytest.mark.parametrize("path", [None, 3, ["Guide > Notes"], "notes/Notes", "Guide > Notes > Other", "Notes", ""])
def test_a_field_that_is_no_path_of_headings_is_not_encoded(path: Any) -> None:
    document = Document("a", "The text.", "Notes", {"path": path})
    assert as_text(document) == document.full == "Notes The text."
