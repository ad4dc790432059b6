from __future__ import annotations

import json

import pytest

from vocable.data.pages.blocks import Block, PageError
from vocable.data.pages.notebook import notebook_page


def test_markdown_and_code_of_a_notebook_are_read() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Lamps\n", "\n", "They *burn*.\n", "- oil"]},
        {"cell_type": "code", "source": "import lamps\n\nlamps.light()\n", "outputs": [{"text": "light"}]},
        {"cell_type": "code", "source": []},
        {"cell_type": "raw", "source": "raw"},
    ]
    assert notebook_page(json.dumps({"cells": cells, "nbformat": 4})).blocks == [
        Block("Lamps", 1, 1),
        Block("They burn.", 1),
        Block("- oil", 1),
        Block("import lamps\n\nlamps.light()", 1),
    ]


def test_a_notebook_of_format_3_has_sheets_and_headings() -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": ["Oil"]},
        {"cell_type": "code", "input": "light()"},
        {"cell_type": "markdown", "source": "Text."},
    ]
    blocks = notebook_page(json.dumps({"worksheets": [{"cells": cells}]})).blocks
    assert blocks == [Block("Oil", 1, 2), Block("light()", 1), Block("Text.", 1)]


def test_cells_that_are_a_little_wrong_are_passed_over() -> None:
    wrong = [1, None, {}, {"source": "typeless"}, {"cell_type": "code", "source": None}, {"cell_type": ["code"]}]
    wrong += [{"cell_type": "markdown", "source": {"a": 1}}, {"cell_type": "code", "source": [1, None, "light()"]}]
    heading = {"cell_type": "heading", "level": "x", "source": "Oil"}
    blocks = notebook_page(json.dumps({"cells": [*wrong, heading], "worksheets": None})).blocks
    assert blocks == [Block("light()", 1), Block("Oil", 1, 1)]


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, '{"cells": 1}', '{"cells": null}'])
def test_what_is_no_notebook_is_named(text: str) -> None:
    with pytest.raises(PageError):
        notebook_page(text)
