"""Load models as fused SparseEncoders, by the names of `vocable.encoding.hub`, and save them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling
from sentence_transformers.util import fullname, load_file_path
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from vocable.core.storage import regular, replacing, replacing_folder
from vocable.encoding.graph import refuse_exported
from vocable.encoding.hub import (
    ADAPTERS,
    BUILT_IN_MODEL,
    BY_LOOKUP,
    MODULES,
    TRUSTING,
    first_line,
    locate,
    trusting,
)
from vocable.encoding.own_terms import TERMS_FILE
from vocable.encoding.pooling import pooling_of
from vocable.errors import ModelError
from vocable.options import Activation, checked
from vocable.torch_models.adapters import merge_adapters
from vocable.torch_models.card import carded, kept_by_vocable
from vocable.torch_models.fuse import every_pooling_allowed, fuse, splade_modules
from vocable.torch_models.layouts import check_kind, check_modules, is_decoder, reading_decoders
from vocable.torch_models.opening import NEW_HEAD, SAVED_AS, check_finite, check_settings, check_sizes, open_model
from vocable.torch_models.output_vocabulary import KEPT, OutputVocabularyTransformer, output_vocabulary
from vocable.torch_models.programs import Translation, translation
from vocable.torch_models.token_weights import ONLY_ENCODES, weighs_tokens

logger = logging.getLogger(__name__)

QUERY_TABLES = ("idf.json", "query_token_weights.txt")  # in the folder of a plain checkpoint with looked-up queries


@checked
def load_sparse_encoder(
    name: str | Path = BUILT_IN_MODEL,
    *,
    pooling: str | None = None,
    activation: Activation | None = None,
    new_head: bool = False,
    special_terms: bool = False,
    device: str | None = None,
    trust_remote_code: bool = False,
) -> SparseEncoder:
    """Load a `SparseEncoder` by name; arguments and errors as in `vocable.encoding.load.load`.

    An output vocabulary other than the tokenizer's is logged (INFO).
    """
    if pooling is not None:
        pooling_of(pooling)
    # The built-in model whose queries are looked up.
    if name == BY_LOOKUP:
        given: dict[str, Any] = {"pooling": pooling, "activation": activation, "new_head": new_head}
        return _by_lookup(load_sparse_encoder(**given, special_terms=special_terms, device=device))

    def open_encoder(place: str, device: str | None, trust_remote_code: bool) -> SparseEncoder:
        if not new_head:
            return _open(place, device, trust_remote_code)
        mlm = _with_new_head(name, place, trust_remote_code)
        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=trust_remote_code)
        return sparse_encoder(mlm, tokenizer, device=device)

    with trusting(trust_remote_code), every_pooling_allowed():
        refuse_exported(name)
        model = open_model(name, open_encoder, device)
    # Prepare each encoder for pooling, then set what the caller chose.
    for transformer, _ in splade_modules(model):
        merge_adapters(transformer.auto_model)
        check_settings(name, transformer)
        transformer.tokenizer.padding_side = "right"  # padding in front would shift the positions of tokens
        if is_decoder(transformer.auto_model):
            transformer.auto_model.config.use_cache = False  # keys and values that encoding does not need
    for transformer, module in splade_modules(model):
        if special_terms:
            setattr(transformer.auto_model.config, KEPT, True)
        module.pooling_strategy = pooling or module.pooling_strategy
        module.activation_function = activation or module.activation_function
        layer = output_vocabulary(transformer.auto_model)
        if layer is not None:
            logger.info("%s has an output vocabulary of its own: %d terms", name, layer.out_features)
    model = carded(fuse(model).eval())
    if new_head or special_terms or pooling or activation:
        model._model_card_text = None  # of the model without the changes
    if not new_head and (table := _query_table(locate(name))) is not None:
        from vocable.torch_models.inference_free import by_lookup  # its imports are slow, and few models need it

        model = by_lookup(model, _token_values(table, model[0].tokenizer))
    if kept := kept_by_vocable(model):
        message = "%s: only vocable keeps %s; README.md has the lines that do it in sentence-transformers"
        logger.info(message, name, kept)
    model.trust_remote_code = (
        trust_remote_code or TRUSTING.get()
    )  # which the trainer of sentence-transformers uses for its checkpoints
    return model


def _query_table(place: str) -> Path | None:
    """Return the file of query token weights in the folder of a plain checkpoint, such as OpenSearch's first models."""
    if load_file_path(place, MODULES) is not None:
        return None
    files = (load_file_path(place, name) for name in QUERY_TABLES)
    return next((Path(file) for file in files if file is not None), None)


def _token_values(table: Path, tokenizer: PreTrainedTokenizerBase) -> NDArray[np.float32]:
    """Return the weight of each token, float32 [tokens]; 0 for tokens that are not in the table."""
    values = np.zeros(len(tokenizer), dtype=np.float32)
    ids = tokenizer.get_vocab()
    try:
        text = regular(table).read_text(encoding="utf-8")
        if table.suffix == ".json":
            weights = json.loads(text).items()
        else:
            weights = [
                (token, float(weight)) for token, weight in (line.split("\t") for line in text.split("\n") if line)
            ]
        for token, weight in weights:
            if token in ids:
                values[ids[token]] = weight
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise ModelError(f"{table}: not a table of the weights of tokens ({first_line(error)})") from error
    return values


def _by_lookup(model: SparseEncoder) -> SparseEncoder:
    """Give the built-in model its table of query weights."""
    from vocable.torch_models.inference_free import by_lookup  # its imports are slow, and few models need it

    weights = load_file(Path(locate(BY_LOOKUP), "query_weights.safetensors"))["weights"]
    encoder = by_lookup(model, weights.float().numpy())
    for transformer, _ in splade_modules(encoder):
        transformer.auto_model.name_or_path = BY_LOOKUP  # the name by which an index finds its query encoder
    return encoder.to(model.device).eval()


def sparse_encoder(
    mlm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, device: str | None = None
) -> SparseEncoder:
    """Make a fused sparse encoder of a masked language model and its tokenizer, which are not copied."""

    class Opened(Transformer):
        """Transformer over `mlm`; the constructor of sentence-transformers only takes the name of a model."""

        def _load_model(self, *args: Any, **settings: object) -> PreTrainedModel:
            return mlm

    with TemporaryDirectory() as folder:
        mlm.config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        transformer = Opened(folder, transformer_task="fill-mask")
        pool = SpladePooling("max")
    transformer.__class__ = Transformer if output_vocabulary(mlm) is None else OutputVocabularyTransformer
    transformer.processor = transformer.input_formatter.processor = tokenizer
    return carded(fuse(SparseEncoder(modules=[transformer, pool], device=device or str(mlm.device))).eval())


def save_model(model: SparseEncoder, output: str | Path, settings: Mapping[str, object] | None = None) -> None:
    """Write `model` to the folder `output`, atomically, with its card.

    `settings` decide the result and are stored for `core.storage.finished`. Raises `ModelError` for weights that are
    not finite.
    """
    check_finite(str(output), model)
    with replacing_folder(output, settings) as folder:
        write_model(model, folder)


def write_model(model: SparseEncoder, folder: Path) -> None:
    """Write `model` with its card into a folder.

    Weights stored in 16 bits are loaded in float32, by sentence-transformers too: NumPy has no bfloat16, and a stock
    training would otherwise learn in it.
    """
    carded(model).save_pretrained(str(folder))
    for file in folder.rglob("config.json"):
        config = json.loads(file.read_bytes())
        if config.get("dtype", "float32") != "float32":
            with replacing(file) as written:
                written.write(json.dumps({**config, "dtype": "float32"}, indent=2).encode() + b"\n")


def _open(place: str, device: str | None, trust_remote_code: bool) -> SparseEncoder:
    """Load the stock model of a place; its transformer is an `OutputVocabularyTransformer` if it has other terms."""
    dtype, trust = {"dtype": "float32"}, {"trust_remote_code": trust_remote_code}
    own_terms = load_file_path(place, TERMS_FILE) is not None
    saved = load_file_path(place, SAVED_AS) is not None or any(Path(place).glob("*_SpladePooling"))
    if weighs_tokens(place):
        raise ModelError(f"{place}: {ONLY_ENCODES}")
    if not saved and load_file_path(place, MODULES) is None:
        if (other := translation(place)) is not None:
            return _translated(other, place, device)
        if load_file_path(place, ADAPTERS[0]) is None:
            check_kind(place)
        module = OutputVocabularyTransformer if own_terms else Transformer
        transformer = module(
            place, transformer_task="fill-mask", model_kwargs=dtype | trust, processor_kwargs=trust, config_kwargs=trust
        )
        return SparseEncoder(modules=[transformer, SpladePooling("max")], device=device)
    saved_as, kind = load_file_path(place, SAVED_AS), "SentenceTransformer"
    if saved_as is not None:
        kind = json.loads(Path(saved_as).read_text(encoding="utf-8")).get("model_type", kind)
    if kind != "SparseEncoder":  # sentence-transformers would convert it without a warning
        raise ModelError(f"{place} is a {kind}, not a sparse encoder: {NEW_HEAD}")
    modules = json.loads(_saved_file(place, MODULES).read_text(encoding="utf-8"))
    folders = [module["path"] for module in modules]
    if (routes := load_file_path(place, Router.config_file_name)) is not None:
        inner = json.loads(Path(routes).read_text(encoding="utf-8"))["types"]
        folders += inner
    files = [_saved_file(place, f"{folder}/config.json") for folder in filter(None, folders)]  # else it uses defaults
    if "" in folders and (root := load_file_path(place, "config.json")) is not None:
        files.append(Path(root))
    check_modules(place)
    types = {json.loads(file.read_text(encoding="utf-8")).get("model_type") for file in files}
    # sentence-transformers imports classes by name only if it may run any code that comes with the model.
    classes = {fullname(OutputVocabularyTransformer): OutputVocabularyTransformer}
    with reading_decoders(types - {None}):
        return SparseEncoder._load_with_module_classes(place, classes, device=device, model_kwargs=dtype, **trust)


def _translated(other: Translation, place: str, device: str | None) -> SparseEncoder:
    """Load the checkpoint of another program."""
    model = sparse_encoder(*other.load(place), device=device)
    transformer, pooling = model
    transformer.query_length, transformer.document_length = other.query_length, other.document_length
    pooling.pooling_strategy, pooling.activation_function = other.pooling, other.activation
    return model


def _saved_file(place: str, file: str) -> Path:
    """Return the path of a file that every saved sparse encoder has."""
    if (path := load_file_path(place, file)) is None:
        raise ModelError(f"{place}: {file} is missing: save or copy the model again, with all of its files")
    return Path(path)


def _with_new_head(name: str | Path, place: str, trust_remote_code: bool) -> PreTrainedModel:
    """Load an encoder with a new head: identity transform, decoder tied to the input embeddings, zero bias."""
    config = check_sizes(name, AutoConfig.from_pretrained(place, trust_remote_code=trust_remote_code))
    config.tie_word_embeddings = True
    try:
        mlm: PreTrainedModel = AutoModelForMaskedLM.from_config(config, trust_remote_code=trust_remote_code)
    except ValueError as error:
        raise ModelError(f"{name}: no masked-language-model head is known for {type(config).__name__}") from error
    encoder = AutoModel.from_pretrained(place, dtype="float32", trust_remote_code=trust_remote_code)
    mlm.base_model.load_state_dict(encoder.state_dict(), strict=False)  # without the encoder's pooler
    encoder_modules = set(mlm.base_model.modules())
    for module in mlm.modules():
        if isinstance(module, nn.Linear) and module not in encoder_modules:
            if module is not mlm.get_output_embeddings():
                nn.init.eye_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    mlm.tie_weights()
    return mlm
