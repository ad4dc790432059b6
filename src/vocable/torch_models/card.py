"""The model card of a sparse encoder: what it is, how to search with it, and how it was made.

sentence-transformers keeps no limits of terms by role and no IDF. The card has the lines that apply both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from huggingface_hub import ModelCard
from sentence_transformers import SparseEncoder
from sentence_transformers.sparse_encoder.model_card import SparseEncoderModelCardData
from yaml import YAMLError

from vocable.encoding.pooling import POOLINGS
from vocable.encoding.protocol import Role, RoleSettings
from vocable.torch_models.fuse import WORD_POSITIONS, main_transformer, splade_modules
from vocable.torch_models.output_vocabulary import output_layer, output_vocabulary
from vocable.torch_models.provenance import provenance
from vocable.torch_models.torch_model import role_settings

PLACE = "MODEL"  # stands for the name of the model; sentence-transformers puts in the name on the Hub
TAGS = ["sentence-transformers", "sparse-encoder", "splade", "vocable"]
ABOUT_MODEL = """\
# A learned sparse retriever

It turns a text into weights of {terms:,} terms; the score of a document is the dot product with the query. A
{kind} with {parameters:,} parameters, {pooling} pooling and the activation {activation}, made with
[vocable](https://pypi.org/project/vocable)."""
SEARCH = f"""\
## Search with it

`{PLACE}` is this folder, or its name on the Hub:

    pip install vocable[train]
    vocable index {PLACE} documents/ -o my-index
    vocable search my-index "your question\""""
ALONE = f"""\
## The same vectors in sentence-transformers

sentence-transformers 6 reads the folder{{but}}. These lines give the vectors of vocable{{collection}}:

```python
from sentence_transformers import SparseEncoder
model = SparseEncoder("{PLACE}")
documents = model.encode_document(texts{{document}}).to_dense()
queries = model.encode_query(questions{{query}}).to_dense(){{weighed}}
```

A text without a token of the vocabulary differs: vocable gives it no terms."""
WEIGHED = """
df = (documents > 0).sum(dim=0)
queries *= (1 + (len(documents) - df + 0.5) / (df + 0.5)).log() ** {power:g}"""
IDF = """\
In a search, the weight of each query term is multiplied by its IDF in the collection to the power {power:g}: with n
documents, df of them with the term, the IDF is log(1 + (n - df + 0.5) / (df + 0.5))."""
ONLY_VOCABLE = """\
## In other programs

sentence-transformers alone gives other vectors, or none: {reason}. `vocable.encode` and `vocable encode` give them."""


@dataclass
class ModelCardData(SparseEncoderModelCardData):
    """The header and the text of the card that sentence-transformers writes with a model."""

    template_path: Path = field(default=Path(__file__).with_name("card.md"), init=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the header and the text of the card."""
        header = {"language": self.language, "license": self.license, "library_name": self.library_name}
        header |= {"tags": TAGS, "pipeline_tag": "feature-extraction", "base_model": self.base_model}
        text = "\n\n".join(parts_of_card(self.model)).replace(PLACE, self.model_id or PLACE)
        self._cached_dict = {**header, "text": text}
        return self._cached_dict


def carded(model: SparseEncoder) -> SparseEncoder:
    """Let `model` have our card when it is saved, in place; keep the language and licence that are known of it."""
    if not isinstance(known := model.model_card_data, ModelCardData):
        stated = _stated(model._model_card_text)
        language, licence = (getattr(known, key) or stated.get(key) for key in ("language", "license"))
        model.model_card_data = ModelCardData(language=language, license=licence)
        model.model_card_data.register_model(model)
        model._model_card_model_id_placeholder = PLACE
    return model


def _stated(card: str | None) -> dict[str, Any]:
    """Return the header of a card; nothing for a card that cannot be read."""
    try:
        return {} if card is None else dict(ModelCard(card).data.to_dict())
    except (ValueError, YAMLError):
        return {}


def limits(model: SparseEncoder) -> dict[Role, RoleSettings]:
    """Return the settings of each role."""
    return {role: role_settings(model, role, None) for role in get_args(Role)}


def kept_by_vocable(model: SparseEncoder) -> str:
    """Return what only vocable does to the vectors of `model`, for a message; "" for nothing."""
    roles, words = limits(model), list[str]()
    if any(settings.max_terms != model.max_active_dims for settings in roles.values()):
        words += [f"the {of.max_terms or 'all'} heaviest terms of a {role}" for role, of in roles.items()]
    if power := roles["query"].query_idf:
        words += [f"the IDF of query terms in the collection, to the power {power:g}"]
    return ", ".join(words)


def parts_of_card(model: SparseEncoder) -> Iterator[str]:
    """Yield the parts of the card of `model`."""
    transformer, pooling = main_transformer(model), splade_modules(model)[-1][1]
    yield ABOUT_MODEL.format(
        terms=output_layer(transformer.auto_model).out_features,
        kind=type(transformer.auto_model).__name__,
        parameters=sum(weights.numel() for weights in model.parameters()),
        pooling=pooling.pooling_strategy,
        activation={"relu": "log(1 + ReLU(x))"}.get(pooling.activation_function, "log(1 + log(1 + ReLU(x)))"),
    )
    roles = limits(model)
    rows = ["| role | tokens read | terms kept | prompt |", "|:--|--:|--:|:--|"]
    for role, settings in roles.items():
        prompt = f"`{settings.prompt}`" if settings.prompt else ""
        rows.append(f"| {role} | {settings.max_length or 'all'} | {settings.max_terms or 'all'} | {prompt} |")
    yield "\n".join(rows)
    yield SEARCH
    if power := roles["query"].query_idf:
        yield IDF.format(power=power)
    yield _elsewhere(model, roles)
    if steps := [*map(_line, provenance(model))]:
        yield "\n".join(["## How it was made", "", *steps])


def _elsewhere(model: SparseEncoder, roles: Mapping[Role, RoleSettings]) -> str:
    """Return the lines that give the vectors in sentence-transformers, or the reason why no lines do."""
    config = main_transformer(model).auto_model.config
    poolings = {pooling.pooling_strategy for _, pooling in splade_modules(model)}
    if output_vocabulary(main_transformer(model).auto_model) is not None:
        return ONLY_VOCABLE.format(reason="the terms are not the tokens of the model")
    if others := [name for name in poolings if not POOLINGS[name].stock]:
        return ONLY_VOCABLE.format(reason=f"it has no {others[0]} pooling")
    if getattr(config, WORD_POSITIONS, False):
        return ONLY_VOCABLE.format(reason="special tokens are not pooled")
    kept: dict[str, str] = {
        role: f", max_active_dims={settings.max_terms}" if settings.max_terms else ""
        for role, settings in roles.items()
    }
    unknown = ["limits of terms by role"] if any(kept.values()) else []
    if power := roles["query"].query_idf:
        kept |= {"weighed": WEIGHED.format(power=power), "collection": ", if `texts` are the whole collection"}
        unknown.append("IDF")
    but = f", but knows no {' and no '.join(unknown)}" if unknown else ""
    return ALONE.format(**{"weighed": "", "collection": "", **kept}, but=but)


def _line(step: Mapping[str, Any]) -> str:
    """Return the line of a step: its verb, settings and figures.

    >>> _line({"verb": "calibrate", "shift": 2.5, "after": {"p_99": 0.012345678}, "tokens": [1, 2]})
    '- calibrate: shift 2.5, after p 99 0.01235'
    """
    return f"- {step['verb']}: {', '.join(_figures(step, ''))}".removesuffix(": ")


def _figures(values: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _figures(value, f"{prefix}{name.replace('_', ' ')} ")
        elif name != "verb" and isinstance(value, str | int | float):
            shown = f"{value:.4g}" if isinstance(value, float) else json.dumps(value).strip('"')
            yield f"{prefix}{name.replace('_', ' ')} {shown}"
