"""The kinds of terms, one vocabulary of each family, and which words are names."""

from __future__ import annotations

from pathlib import Path

import pytest
from sentence_transformers import SparseEncoder

from vocable.encoding.hub import BUILT_IN_MODEL
from vocable.encoding.load import load
from vocable.encoding.terms import terms
from vocable.encoding.tokens import Surface
from vocable.torch_models.fuse import fuse
from vocable.wackiness.expansions import TERM_KINDS, model_surfaces, proper_names, term_kind, word_surfaces


@pytest.mark.parametrize(
    ("surface", "kind"),
    [
        (Surface("[CLS]", False, "special"), "tokenizer artefact"),
        (Surface("[unused7]", True, "word"), "tokenizer artefact"),
        (Surface("Ã", False, "bytes"), "tokenizer artefact"),
        (Surface("D", True, "word"), "tokenizer artefact"),
        (Surface("b", True, "word"), "tokenizer artefact"),
        (Surface("a", True, "word"), "stop word"),
        (Surface("It", True, "word"), "stop word"),
        (Surface(",,", False, "punctuation"), "punctuation"),
        (Surface("°", True, "word"), "punctuation"),
        (Surface("д", False, "continuation"), "non-Latin"),
        (Surface("言葉", True, "word"), "non-Latin"),
        (Surface("ünal", False, "continuation"), "sub-word"),
        (Surface("o", False, "continuation"), "sub-word"),
        (Surface("the", False, "continuation"), "sub-word"),
        (Surface("1985", True, "word"), "number"),
        (Surface("9", True, "word"), "number"),
        (Surface("co2", True, "word"), "other word"),
        (Surface("naïve", True, "word"), "other word"),
        (Surface("Edmund", True, "word"), "proper name"),
    ],
)
def test_a_term_is_the_first_kind_that_it_can_be(surface: Surface, kind: str) -> None:
    assert term_kind(surface, {"edmund"}) == kind
    assert kind in TERM_KINDS


FAMILIES = {
    "bert": {"[CLS]": "tokenizer artefact", ".": "punctuation", "the": "stop word", "fox": "other word"},
    "modernbert": {"<pad>": "tokenizer artefact", "Ã": "tokenizer artefact", "Ġthe": "stop word", "?": "punctuation"},
    "albert": {"[MASK]": "tokenizer artefact", "▁old": "other word", "▁": "punctuation", "▁The": "stop word"},
}


@pytest.mark.parametrize("architecture", FAMILIES)
def test_kinds_of_a_models_terms(backbones: dict[str, Path], architecture: str) -> None:
    model = fuse(SparseEncoder(str(backbones[architecture]), device="cpu")).eval()
    names, kinds = terms(model), [term_kind(surface) for surface in model_surfaces(model)]
    assert len(kinds) == len(names)
    found = dict(zip(names, kinds, strict=True))
    assert {term: found[term] for term in FAMILIES[architecture]} == FAMILIES[architecture]
    padded = [kind for name, kind in found.items() if name.startswith("<") and name[1:-1].isdecimal()]
    assert set(padded) <= {"tokenizer artefact"}
    assert bool(padded) == (architecture == "modernbert")
    if architecture == "bert":
        assert {kind for name, kind in found.items() if name.startswith("##") and name[2:].isalpha()} == {"sub-word"}


def test_a_graph_has_the_surfaces_of_its_model() -> None:
    graph, model = load(BUILT_IN_MODEL, runtime="onnx"), load(BUILT_IN_MODEL, runtime="torch")
    assert model_surfaces(graph) == model_surfaces(model)


def test_words_are_their_own_surfaces() -> None:
    kinds = [term_kind(surface) for surface in word_surfaces(["the", "cat", "...", "42"])]
    assert kinds == ["stop word", "other word", "punctuation", "number"]


def test_names_are_capital_where_others_are_not() -> None:
    text = "We asked Mira and Anna about DNA, and we met Mira. Then the Red bus came."
    assert proper_names([text] * 3) == {"mira", "anna", "red"}
    assert proper_names([text]) == set()  # too few to tell
    assert proper_names([text], least=2) == {"mira"}
    # Now and then in small letters: no name below the share.
    assert "red" not in proper_names([text] * 3 + ["there was a red one"])
    assert "red" in proper_names([text] * 3 + ["there was a red one"], share=0.75)
    assert proper_names(["A Heading In Capitals Says Nothing", "NOR DOES THIS ONE", ""] * 9) == set()
    assert proper_names(["we asked mira"] * 9) == set()
    assert proper_names(["Mira said. Mira did. Mira went."] * 9) == set()  # all begin a sentence
