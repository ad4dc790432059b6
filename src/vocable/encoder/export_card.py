"""The card of an exported model: how a program without vocable gets the vectors that vocable makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router

from vocable.encoder.asymmetric import Role, static_embedding
from vocable.encoder.graph import OUTPUT
from vocable.encoder.hub import licence
from vocable.encoder.provenance import model_name
from vocable.encoder.text_encoder import TextEncoder

INPUTS = """\
The graph reads `input_ids`, `attention_mask` and, where it has this input, `token_type_ids`: int64 [texts, tokens].
Each output is float32 [texts, terms]; the number of a term is that of its token. Padding may stand on either side. A
text without a token that the vocabulary knows has no terms, and neither has a row whose mask is zero."""
LIMITS = """\
Have the tokenizer cut a text after these tokens, which include the special ones. `{output}` has all terms of a text,
however many are kept."""
IDF = """\
vocable multiplies the weight of each query term, when it searches, by idf to the power {power:g}, where idf is
log(1 + (n - df + 0.5) / (df + 0.5)): n is the number of documents of the collection, and df that of the documents whose
`document_weights` have the term. The graph cannot know the collection: multiply `query_weights` in the same way."""
LOOKUP = """\
Queries have no graph: each distinct token of a query, special tokens left out, has the weight that stands for it in the
folder `query_0_SparseStaticEmbedding`."""


def card(made: SparseEncoder, source: SparseEncoder, format: str) -> str:
    """Return the card of `made`, an exported model that was made from `source`, as Markdown."""
    return "\n\n".join(_parts(made, source, format)) + "\n"


def _parts(made: SparseEncoder, source: SparseEncoder, format: str) -> Iterator[str]:
    stated = licence(model_name(source))
    header = ["---", "library_name: vocable", "pipeline_tag: feature-extraction"]
    header += [] if stated is None else [f"license: {stated}"]
    yield "\n".join([*header, "tags:", "  - sparse-encoder", "  - splade", f"  - {format}", "---"])
    yield f"# A sparse encoder as a graph for {'ONNX Runtime' if format == 'onnx' else 'OpenVINO'}"
    yield "Written by `vocable export-model`; `vocable.load` reads the folder. Other programs read the graph by itself:"
    yield INPUTS
    roles: tuple[Role, ...] = get_args(Role)
    encoders = [TextEncoder(made, role) for role in roles if static_embedding(made, role) is None]
    rows = ["| role | output | tokens of a text | terms kept |", "|:--|:--|--:|--:|"]
    rows += [
        f"| {one.role} | `{one.role}_{OUTPUT}` | {one.max_length} | {one.max_terms or 'all'} |" for one in encoders
    ]
    yield "\n".join(rows)
    yield LIMITS.format(output=OUTPUT)
    if isinstance(made[0], Router):
        yield "Each graph lies in a folder whose name begins with the role that it encodes."
    if len(encoders) < len(roles):
        yield LOOKUP
    for one in encoders:
        if one.prompt:
            yield f"The text of a {one.role} begins with the prompt `{one.prompt}`."
    if power := TextEncoder(made, "query").query_idf:
        yield IDF.format(power=power)
