"""Phrases in texts: lines of words; `test_query_syntax.py` compares them with runs of words."""

from vocable.language.phrases import SpelledText


def test_equal_words_have_equal_lines() -> None:
    assert (
        SpelledText("Binary-Search trees!").lines
        == SpelledText("binary search TREES").lines
        == "\nbinary\nsearch\ntrees\n"
    )


def test_a_text_has_itself_and_no_longer_phrase() -> None:
    text = SpelledText("東京都の猫 is a cat")
    assert text.has(text)
    assert not text.has(SpelledText("東京都の猫 is a cat too"))
