"""Explanations of texts, which a model encodes first."""

from __future__ import annotations

from collections.abc import Collection

from sentence_transformers import SparseEncoder

from vocable.data.texts import Text, as_text
from vocable.encoder.asymmetric import Role
from vocable.encoder.fuse import splade_modules
from vocable.encoder.output_vocabulary import output_vocabulary
from vocable.encoder.stream import encode
from vocable.encoder.terms import input_terms, terms
from vocable.retrieval.explain import Expansion, Explanation, expansion, explain


def explain_texts(
    model: SparseEncoder, query: Text, document: Text | None = None, wacky: Collection[str] | None = None
) -> Explanation | Expansion:
    """Encode a query and a document (title and text) with a model from `vocable.load`, and explain their score.

    Both are a str or a record. Without a document: the terms that the query becomes.
    """
    query = as_text(query, "query")
    if document is None:
        return expansion_of_text(model, query, role="query", wacky=wacky)
    document = as_text(document, "document")
    vectors = encode(model, [query], role="query"), encode(model, [document], role="document")
    return explain(*vectors, terms(model), text_terms(model, query), text_terms(model, document), wacky)


def expansion_of_text(
    model: SparseEncoder, text: str, role: Role = "document", k: int = 20, wacky: Collection[str] | None = None
) -> Expansion:
    """Encode a text with a model from `vocable.load` and show its k heaviest terms."""
    text = as_text(text)
    return expansion(encode(model, [text], role=role), terms(model), text_terms(model, text), k, wacky)


def text_terms(model: SparseEncoder, text: str) -> set[str]:
    """The output terms of `model` that stand in `text`, also beyond the length at which the model cuts it.

    They are those that `vocable.encoder.terms` counts.
    """
    [(transformer, _), *_] = splade_modules(model)
    columns, layer = input_terms(model, [text]).indices.tolist(), output_vocabulary(transformer.auto_model)
    if layer is None:
        return set(transformer.tokenizer.convert_ids_to_tokens(columns))
    return {layer.terms[column] for column in columns}
