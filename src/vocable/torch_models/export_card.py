"""Model card of an exported model: a description of the graph for programs without vocable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from vocable.encoding.graph import QUERY_WEIGHTS, GraphModel
from vocable.encoding.graph_sessions import OUTPUT
from vocable.encoding.hub import licence
from vocable.encoding.models import Model, model_name
from vocable.encoding.protocol import Role
from vocable.encoding.text_encoder import TextEncoder

ABOUT_INPUTS = """\
The graph reads `input_ids`, `attention_mask` and, if it has this input, `token_type_ids`: int64 [texts, tokens]. Each
output is float32 [texts, terms]; a term has the number of its token. Padding may be on either side. A text without a
token in the vocabulary has no terms, and neither has a row with a mask of zeros."""
ABOUT_LIMITS = """\
Let the tokenizer truncate a text to this number of tokens, special tokens included. `{output}` has all terms of a
text."""
ABOUT_IDF = """\
In a search, vocable multiplies the weight of each query term by idf to the power {power:g}, with idf =
log(1 + (n - df + 0.5) / (df + 0.5)), n documents in the collection, and df documents with the term in their
`document_weights`. The graph does not know the collection: multiply `query_weights` in the same way."""
ABOUT_LOOKUP = f"""\
Queries have no graph: the weight of each distinct token of a query, without special tokens, is in
`query/{QUERY_WEIGHTS}`."""


def card(model: GraphModel, source: Model) -> str:
    """Return the card of `model`, an exported model made from `source`, as Markdown."""
    return "\n\n".join(_parts(model, source)) + "\n"


def _parts(model: GraphModel, source: Model) -> Iterator[str]:
    stated, format = licence(model_name(source)), model.settings.format
    header = ["---", "library_name: vocable", "pipeline_tag: feature-extraction"]
    header += [] if stated is None else [f"license: {stated}"]
    yield "\n".join([*header, "tags:", "  - sparse-encoder", "  - splade", f"  - {format}", "---"])
    yield f"# A sparse encoder as a graph for {'ONNX Runtime' if format == 'onnx' else 'OpenVINO'}"
    yield "Written by `vocable export-model`; `vocable.load` reads the folder. Other programs read the graph:"
    yield ABOUT_INPUTS
    roles: tuple[Role, ...] = get_args(Role)
    encoders = [TextEncoder(model, role) for role in roles if not model.looks_up(role)]
    rows = ["| role | output | tokens of a text | terms kept |", "|:--|:--|--:|--:|"]
    rows += [
        f"| {encoder.role} | `{encoder.role}_{OUTPUT}` | {encoder.max_length} | {encoder.max_terms or 'all'} |"
        for encoder in encoders
    ]
    yield "\n".join(rows)
    yield ABOUT_LIMITS.format(output=OUTPUT)
    if any(of_role.folder for of_role in model.settings.roles.values()):
        yield "Each graph is in a folder of the name of its role."
    if len(encoders) < len(roles):
        yield ABOUT_LOOKUP
    for encoder in encoders:
        if encoder.prompt:
            yield f"The text of a {encoder.role} begins with the prompt `{encoder.prompt}`."
    if power := TextEncoder(model, "query").query_idf:
        yield ABOUT_IDF.format(power=power)
