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

from vocable.core.storage import replacing_folder
from vocable.encoding.graph import refuse_exported
from vocable.encoding.hub import BUILT_IN_MODEL, BY_LOOKUP, TRUSTING, first_line, locate, trusting
from vocable.encoding.own_terms import TERMS_FILE
from vocable.encoding.pooling import pooling_of
from vocable.errors import ModelError
from vocable.options import Activation, checked
from vocable.torch_models.fuse import every_pooling_allowed, fuse, splade_modules
from vocable.torch_models.layouts import check_kind, is_decoder, reading_decoders
from vocable.torch_models.opening import NEW_HEAD, SAVED_AS, check_finite, check_settings, check_sizes, open_model
from vocable.torch_models.output_vocabulary import KEPT, OutputVocabularyTransformer, output_vocabulary
from vocable.torch_models.token_weights import ONLY_ENCODES, weighs_tokens

logger = logging.getLogger(__name__)

MODULES_FILE = "modules.json"  # in the folder of a saved SparseEncoder
QUERY_TABLE = "idf.json"  # in the folder of a plain checkpoint with looked-up queries


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
    for transformer, _ in splade_modules(model):
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
    model = fuse(model).eval()
    if not new_head and (table := _query_table(locate(name))) is not None:
        from vocable.torch_models.inference_free import by_lookup  # its imports are slow, and few models need it

        model = by_lookup(model, _token_values(table, model[0].tokenizer))
    model.trust_remote_code = (
        trust_remote_code or TRUSTING.get()
    )  # which the trainer of sentence-transformers uses for its checkpoints
    return model


def _query_table(place: str) -> Path | None:
    """Return the file of query token weights in the folder of a plain checkpoint, such as OpenSearch's first models."""
    plain = load_file_path(place, MODULES_FILE) is None
    return Path(file) if plain and (file := load_file_path(place, QUERY_TABLE)) is not None else None


def _token_values(table: Path, tokenizer: PreTrainedTokenizerBase) -> NDArray[np.float32]:
    """Return the weight of each token, float32 [tokens]; 0 for tokens that are not in the table."""
    values, ids = np.zeros(len(tokenizer), dtype=np.float32), tokenizer.get_vocab()
    try:
        for token, weight in json.loads(table.read_text(encoding="utf-8")).items():
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
    return fuse(SparseEncoder(modules=[transformer, pool], device=device or str(mlm.device))).eval()


def save_model(model: SparseEncoder, output: str | Path, settings: Mapping[str, object] | None = None) -> None:
    """Write `model` to the folder `output`, atomically, with a model card if it has two roles.

    `settings` decide the result and are stored for `core.storage.finished`. Raises `ModelError` for weights that are
    not finite.
    """
    check_finite(str(output), model)
    with replacing_folder(output, settings) as folder:
        model.save_pretrained(str(folder), create_model_card=isinstance(model[0], Router))


def _open(place: str, device: str | None, trust_remote_code: bool) -> SparseEncoder:
    """Load the stock model of a place; its transformer is an `OutputVocabularyTransformer` if it has other terms."""
    dtype, trust = {"dtype": "float32"}, {"trust_remote_code": trust_remote_code}
    own_terms = load_file_path(place, TERMS_FILE) is not None
    saved = load_file_path(place, SAVED_AS) is not None or any(Path(place).glob("*_SpladePooling"))
    if weighs_tokens(place):
        raise ModelError(f"{place}: {ONLY_ENCODES}")
    if not saved and load_file_path(place, MODULES_FILE) is None:
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
    modules = json.loads(_saved_file(place, MODULES_FILE).read_text(encoding="utf-8"))
    folders = [module["path"] for module in modules]
    if (routes := load_file_path(place, Router.config_file_name)) is not None:
        inner = json.loads(Path(routes).read_text(encoding="utf-8"))["types"]
        folders += inner
    files = [_saved_file(place, f"{folder}/config.json") for folder in filter(None, folders)]  # else it uses defaults
    if "" in folders and (root := load_file_path(place, "config.json")) is not None:
        files.append(Path(root))
    types = {json.loads(file.read_text(encoding="utf-8")).get("model_type") for file in files}
    # sentence-transformers imports classes by name only if it may run any code that comes with the model.
    classes = {fullname(OutputVocabularyTransformer): OutputVocabularyTransformer}
    with reading_decoders(types - {None}):
        return SparseEncoder._load_with_module_classes(place, classes, device=device, model_kwargs=dtype, **trust)


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
