"""A name or a path -> a fused SparseEncoder.

Masked-language-model checkpoints in and out: what every adaptation starts from and leaves.

They are stock checkpoints, unless the output vocabulary is another than the tokenizer's (`output_vocabulary`).

What to move a model onto: a tokenizer, and the model that goes with it where there is one.

Give an encoder without a masked-language-model head one that starts as close to the identity as it can.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, TypeVar, get_args

import torch
from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError
from sentence_transformers import SparseEncoder
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

from vocable.encoder.fuse import POOLINGS, fuse, splade_modules
from vocable.encoder.head import Activation
from vocable.encoder.output_vocabulary import (
    TERMS,
    OutputVocabularyTransformer,
    output_vocabulary,
    restore_output_vocabulary,
    weights_expected,
    write_terms,
)
from vocable.errors import ArgumentError, ModelError
from vocable.storage import refuse_taken, replacing_folder

logger = logging.getLogger(__name__)

BUILT_IN = "vocable-mini"
SHOWN = 3  # missing weights that a message names
# How the host libraries begin to say, at length, that there is no tokenizer.
NO_TOKENIZER = ("Unrecognized processing class", "Couldn't instantiate the backend tokenizer")

M = TypeVar("M", bound=nn.Module)

_OPENING = RLock()  # two threads that open models would restore each other's


def load(
    name: str | Path = BUILT_IN,
    *,
    pooling: str | None = None,
    activation: str | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
) -> SparseEncoder:
    """Load a sparse encoder, in float32, and give it the head that never builds the logits.

    A model with an output vocabulary other than its tokenizer's is logged as such (INFO).

    Args:
        name: "vocable-mini" (the built-in model), a folder, or a Hub id: a saved `SparseEncoder`, or a plain
            masked-language-model checkpoint, which gets max pooling.
        pooling: "max", "sum", "cls" or "mean-before-head" (docs/head.md) in place of the model's own.
        activation: "relu" for log(1 + ReLU(x)), "log1p_relu" for log(1 + log(1 + ReLU(x))); else the model's own.
        device: where to put it; by default CUDA or MPS if there is one.
        trust_remote_code: run code that comes with the model; never without being asked.

    Raises:
        ModelError: nothing is there, it is not a sparse encoder, weights or its tokenizer are missing, or its head
            cannot be bypassed.
        DataError: the terms of its output vocabulary are damaged.
        ArgumentError: no such pooling or activation.
    """
    for what, asked, known in (("pooling", pooling, POOLINGS), ("activation", activation, get_args(Activation))):
        if asked is not None and asked not in known:
            raise ArgumentError(f"{what} must be one of {', '.join(known)}, not {asked!r}")
    place = locate(name)
    _check_sparse(place, trust_remote_code)
    with every_pooling_allowed():
        model = open_whole(name, lambda: _open(place, device, trust_remote_code))
    for transformer, module in splade_modules(model):
        module.pooling_strategy = pooling or module.pooling_strategy
        module.activation_function = activation or module.activation_function
        layer = output_vocabulary(transformer.auto_model)
        if layer is not None:
            logger.info("%s has an output vocabulary of its own: %d terms", name, layer.out_features)
    return fuse(model).eval()


def locate(name: str | Path) -> str:
    """Where the files of a model are: the built-in one by its name, `package:NAME/FOLDER`, a folder, or a Hub id.

    Raises:
        ModelError: a package that is not installed, or neither a folder nor a model on the Hub.
    """
    if name == BUILT_IN:
        return str(files("vocable") / "models" / BUILT_IN)
    text = str(name)
    if text.startswith("package:"):
        package, _, folder = text.removeprefix("package:").partition("/")
        if find_spec(package) is None:
            raise ModelError(f"{text}: the package {package} is not installed: pip install {package}")
        return str(files(package).joinpath(folder))
    if not Path(text).exists():
        _check_hub(text)
    return text


def open_whole(name: str | Path, open_model: Callable[[], M]) -> M:
    """What `open_model` opens with the host libraries, which make up at random whatever weights are missing.

    Raises:
        ModelError: it cannot be read, or weights or a tokenizer are missing.
    """
    try:
        with _weights_whole(name):
            model = open_model()
    except (OSError, ValueError, HFValidationError, SafetensorError) as error:
        if str(error).startswith(NO_TOKENIZER):
            raise ModelError(f"{name}: its tokenizer is missing") from error
        raise ModelError(f"{name}: {_first_line(error)}") from error
    for module in model.modules():
        check_tokenizer(name, getattr(module, "tokenizer", None))
    return model


def check_tokenizer(name: str | Path, tokenizer: Any) -> None:
    """Refuse what transformers makes up for a folder without a tokenizer: one that knows nothing but special tokens.

    Raises:
        ModelError: it is such a one.
    """
    known = isinstance(tokenizer, PreTrainedTokenizerBase)
    if known and set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise ModelError(f"{name}: its tokenizer is missing")


def check_weights(name: str | Path, model: PreTrainedModel, missing: Collection[str]) -> None:
    """Refuse a model of which transformers has made weights up.

    A pooler that only a classification would use may be missing, as may what is no parameter.

    Raises:
        ModelError: there are `missing` parameters; it names the first three.
    """
    classifies = type(model).__name__.endswith("ForSequenceClassification")
    parameters = {key for key, _ in model.named_parameters(remove_duplicate=False)}
    lost = sorted(key for key in missing if key in parameters and (classifies or "pooler." not in key))
    if lost:
        more = f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else ""
        raise ModelError(f"{name}: weights are missing: {', '.join(lost[:SHOWN])}{more}")


@contextmanager
def _weights_whole(name: str | Path) -> Iterator[None]:
    """Within the context whatever model of transformers is opened is checked, also by sentence-transformers.

    That library does not pass on what transformers says about missing weights.
    """
    with _OPENING:
        stock = PreTrainedModel.__dict__["from_pretrained"]

        def checked(cls: Any, /, *args: Any, output_loading_info: bool = False, **settings: Any) -> Any:
            model, loading = stock.__func__(cls, *args, output_loading_info=True, **settings)
            check_weights(name, model, loading["missing_keys"])
            return (model, loading) if output_loading_info else model

        PreTrainedModel.from_pretrained = classmethod(checked)
        try:
            yield
        finally:
            PreTrainedModel.from_pretrained = stock


def _open(place: str, device: str | None, trust_remote_code: bool) -> SparseEncoder:
    """The stock model of a place; its transformer is ours where an output vocabulary lies beside it."""
    dtype = {"dtype": "float32"}
    if load_file_path(place, TERMS) is None:
        return SparseEncoder(place, device=device, trust_remote_code=trust_remote_code, model_kwargs=dtype)
    if load_file_path(place, "modules.json") is None:
        trust = {"trust_remote_code": trust_remote_code}
        transformer = OutputVocabularyTransformer(
            place, transformer_task="fill-mask", model_kwargs=dtype | trust, processor_kwargs=trust, config_kwargs=trust
        )
        return SparseEncoder(modules=[transformer, SpladePooling("max")], device=device)
    # The host library would import the class by its name, and to do so it would have to trust any other code, too.
    return SparseEncoder._load_with_module_classes(
        place,
        {fullname(OutputVocabularyTransformer): OutputVocabularyTransformer},
        device=device,
        trust_remote_code=trust_remote_code,
        model_kwargs=dtype,
    )


def _check_hub(name: str) -> None:
    """Ask the Hub once: the host libraries ask again and again, for more than a minute where there is no network."""
    try:
        if try_to_load_from_cache(name, "config.json") is None:
            HfApi().model_info(name, timeout=10)
    except HFValidationError as error:  # a path
        raise ModelError(f"{name}: no such model folder") from error
    except Exception as error:  # whatever the transport raises, beside the library's own
        reason = _first_line(error) or type(error).__name__
        raise ModelError(f"{name}: no such model folder, and not found on the Hub ({reason})") from error


def _check_sparse(place: str, trust_remote_code: bool) -> None:
    """Refuse what SparseEncoder would quietly turn into something else: dense models, encoders without a head."""
    try:
        saved_as = load_file_path(place, "config_sentence_transformers.json")
        if load_file_path(place, "modules.json") is not None:
            kind = "SentenceTransformer"
            if saved_as is not None:
                kind = json.loads(Path(saved_as).read_text(encoding="utf-8")).get("model_type", kind)
            if kind != "SparseEncoder":
                raise ModelError(f"{place} is a {kind}, not a sparse encoder")
            return
        config = AutoConfig.from_pretrained(place, trust_remote_code=trust_remote_code)
    except json.JSONDecodeError as error:
        raise ModelError(f"{place}: its configuration is damaged ({error})") from error
    except (OSError, ValueError, HFValidationError) as error:
        raise ModelError(f"{place}: no such model folder, and not found on the Hub ({_first_line(error)})") from error
    architectures = config.architectures or []
    if not any(architecture.endswith("ForMaskedLM") for architecture in architectures):
        found = ", ".join(architectures) or "no architecture"
        raise ModelError(f"{place} has no masked-language-model head (its configuration names {found})")


@contextmanager
def every_pooling_allowed() -> Iterator[None]:
    """Within the context the stock class takes the poolings that exist in the fused head only.

    Outside plain sentence-transformers refuses a folder with one of them, as it should: its own head would sum.
    """
    modes = SpladePooling.SPLADE_POOLING_MODES
    SpladePooling.SPLADE_POOLING_MODES = POOLINGS
    try:
        yield
    finally:
        SpladePooling.SPLADE_POOLING_MODES = modes


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def load_checkpoint(name: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The masked language model and the tokenizer of a folder, a Hub id, or `package:NAME/FOLDER`, in float32.

    Raises:
        ModelError: nothing is there, weights or its tokenizer are missing, it has no masked-language-model head, or its
            output vocabulary is damaged.
        DataError: the terms of its output vocabulary are.
    """
    place = locate(name)
    try:
        with weights_expected():
            mlm, loading = AutoModelForMaskedLM.from_pretrained(place, dtype="float32", output_loading_info=True)
    except (OSError, ValueError, HFValidationError, SafetensorError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(f"{name}: no masked language model could be read here ({reason})") from error
    body = f"{mlm.base_model_prefix}."
    check_weights(name, mlm, [key for key in loading["missing_keys"] if key.startswith(body)])
    if loading["missing_keys"]:  # the host library makes them up, at random
        missing = ", ".join(sorted(loading["missing_keys"])[:3])
        raise ModelError(
            f"{name} has no masked-language-model head, or not all of it (no {missing}): "
            "a recipe with head: new gives it one (vocable train)"
        )
    restore_output_vocabulary(mlm, place)
    return mlm, load_tokenizer(name)


def load_tokenizer(name: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder, a Hub id, or `package:NAME/FOLDER`, whatever model is or is not there.

    Raises:
        ModelError: no tokenizer is there.
    """
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(locate(name))
    except (OSError, ValueError, HFValidationError) as error:
        if str(error).startswith(NO_TOKENIZER):
            raise ModelError(f"{name}: its tokenizer is missing") from error
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(f"{name}: no tokenizer could be read here ({reason})") from error
    check_tokenizer(name, tokenizer)
    return tokenizer


def save_checkpoint(
    mlm: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    output: str | Path,
    *,
    beside: Mapping[str, bytes] | None = None,
) -> None:
    """Write both to the folder `output`, whole or not at all.

    Args:
        mlm: the model.
        tokenizer: what goes with it.
        output: a folder that is not there yet.
        beside: further files of the folder, {name: content}.

    Raises:
        ArgumentError: `output` is there already, or is being made by another command.
    """
    output = Path(output)
    refuse_taken(output)
    with replacing_folder(output) as unfinished:
        mlm.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        layer = output_vocabulary(mlm)
        if layer is not None:
            write_terms(unfinished / TERMS, layer.terms)
        for name, content in (beside or {}).items():
            (unfinished / name).write_bytes(content)


class Target(NamedTuple):
    """A vocabulary to move to."""

    tokenizer: PreTrainedTokenizerBase
    model: PreTrainedModel | None  # None for a tokenizer alone; without an output layer for an encoder without a head


def load_target(name: str | Path) -> Target:
    """The tokenizer of a folder, a Hub id, or `package:NAME/FOLDER`, with its model if there is one, in float32.

    Raises:
        ModelError: no tokenizer is there, or the model beside it is damaged or lacks weights.
    """
    try:
        return Target(load_tokenizer(name), _model(name))
    except SafetensorError as error:
        raise ModelError(f"{name}: its weights are damaged ({error})") from error


def _model(name: str | Path) -> PreTrainedModel | None:
    place = locate(name)
    try:
        model, loading = AutoModelForMaskedLM.from_pretrained(place, dtype="float32", output_loading_info=True)
        missing = loading["missing_keys"]
        if missing and _is_headless(model, missing):  # the host library has made a head up, at random
            model, loading = AutoModel.from_pretrained(place, dtype="float32", output_loading_info=True)
            missing = loading["missing_keys"]
    except (OSError, ValueError, HFValidationError):  # no configuration, or no weights
        return None
    check_weights(name, model, missing)
    return model


def _is_headless(mlm: PreTrainedModel, missing: Collection[str]) -> bool:
    """Whether not one weight of the head was there; what it shares with the encoder does not count."""
    encoder = {id(parameter) for parameter in mlm.base_model.parameters()}
    named = list(mlm.named_parameters(remove_duplicate=False))
    lost = {id(parameter) for name, parameter in named if name in missing}
    return all(id(parameter) in encoder | lost for _, parameter in named)


def add_mlm_head(name: str) -> PreTrainedModel:
    """The encoder `name` with a new head: transform at identity, decoder tied to the input embeddings, bias zero.

    A random head would have to be learned before the encoder learns anything; with the identity the decoder compares
    the encoder's output with the embeddings from the first step on.

    Raises:
        ModelError: there is no masked-language-model class for this architecture, or the encoder lacks weights.
    """
    config = AutoConfig.from_pretrained(name)
    config.tie_word_embeddings = True
    try:
        mlm: PreTrainedModel = AutoModelForMaskedLM.from_config(config)
    except ValueError as error:
        raise ModelError(f"{name}: no masked-language-model head is known for {type(config).__name__}") from error
    encoder, loading = AutoModel.from_pretrained(name, output_loading_info=True)
    check_weights(name, encoder, loading["missing_keys"])
    mlm.base_model.load_state_dict(encoder.state_dict(), strict=False)  # the encoder's pooler has no place here
    encoder_modules = set(mlm.base_model.modules())
    decoder = mlm.get_output_embeddings()
    for module in mlm.modules():
        if isinstance(module, nn.Linear) and module is not decoder and module not in encoder_modules:
            _make_identity(module)
    if decoder.bias is not None:
        nn.init.zeros_(decoder.bias)
    mlm.tie_weights()
    return mlm


def _make_identity(linear: nn.Linear) -> None:
    with torch.no_grad():
        nn.init.eye_(linear.weight)
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)
