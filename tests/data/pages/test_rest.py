from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocable.data.pages.blocks import PageError
from vocable.data.pages.rest import inline, rest_page

PAGE = """.. _top:

=======
 Title
=======

:Author: Me

Intro with :class:`~a.B`, `a link <http://x>`__, word_ and ``lit*eral``. Code::

    def f():
        pass

Section
-------

.. note:: A note that
   goes on.

   Second.

.. code-block:: python
   :linenos:

   # no heading
   ----------

.. image:: x.png
   :alt: A picture

.. toctree::

   other

.. a comment
   and more

- one
- two

Sub
~~~

=====  =====
A      B
=====  =====
1      2
=====  =====

----

Other
-----

.. function:: open(file)

   Open *file*.
"""


def test_a_page_of_rest_has_blocks() -> None:
    assert [(block.line, block.level, block.text) for block in rest_page(PAGE).blocks] == [
        (3, 1, "Title"),
        (7, 0, "Author: Me"),
        (9, 0, "Intro with a.B, a link, word and lit*eral. Code:"),
        (11, 0, "def f():\n    pass"),
        (14, 2, "Section"),
        (17, 0, "A note that\ngoes on."),
        (20, 0, "Second."),
        (22, 0, "# no heading\n----------"),
        (28, 0, "A picture"),
        (38, 0, "- one\n- two"),
        (41, 3, "Sub"),
        (44, 0, "A      B\n1      2"),
        (52, 2, "Other"),
        (55, 0, "open(file)"),
        (57, 0, "Open file."),
    ]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("``a`b``", "a`b"),
        (":py:func:`f` and :ref:`text <label>`", "f and text"),
        ("`<only>`_", "only"),
        (":pep:`8` and HKEY_* values", "PEP 8 and HKEY_* values"),
        ("*a* **b** 2 * 3", "a b 2 * 3"),
        ("|name| [1]_ x\\ y Python_.", "name x y Python."),
        ("snake_case and __init__", "snake_case and __init__"),
        ("a `b", "a `b"),
    ],
)
def test_inline_marks_of_rest_are_no_text(text: str, plain: str) -> None:
    assert inline(text) == plain


@given(st.text("ab=-~ \n.:`*|_[]<>\\", max_size=80))
def test_any_text_can_be_read(text: str) -> None:
    rest_page(text)


def test_deep_indentation() -> None:
    assert rest_page("".join(" " * depth + "a\n\n" for depth in range(1500))).blocks


def test_targets_without_a_name_are_no_text() -> None:
    text = "See `this`__ and `that`__.\n\n__ https://a.b/c\n__ https://d.e\n\n.. __: https://f.g\n\nEnd."
    assert [block.text for block in rest_page(text).blocks] == ["See this and that.", "End."]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (".. |ver| replace:: 2.0\n   beta\n\nRun |ver|_ of |name|.", "Run 2.0 beta of name."),
        (".. |c| unicode:: ©\n\n|c| 2024", "© 2024"),
        (".. csv-table:: T\n   :header: a, b\n\n   1, 2", "T|a, b|1, 2"),
        (".. code-block:: sh\n   :caption: Run it\n\n   ls", "Run it|ls"),
        (".. only:: html\n\n   Text.", "Text."),
    ],
)
def test_what_directives_replace_and_name_is_text(text: str, plain: str) -> None:
    assert "|".join(block.text for block in rest_page(text).blocks) == plain


def test_replacements_that_multiply_are_refused() -> None:
    with pytest.raises(PageError):
        rest_page(f".. |a| replace:: {'x' * 9000}\n\n" + "|a| " * 9000)


@pytest.mark.parametrize("directive", ["confval", "py:attribute"])
def test_types_and_defaults_of_settings_are_text(directive: str) -> None:
    text = f".. {directive}:: color\n   :type: ``str``\n   :no-index:\n   :default: :code:`'red'`\n\n   Of the lamp.\n"
    texts = [block.text for block in rest_page(text).blocks]
    assert texts == ["color", "type: str\ndefault: 'red'", "Of the lamp."]
