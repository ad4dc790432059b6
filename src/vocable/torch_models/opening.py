"""Load models and tokenizers strictly: missing or damaged weights and tokenizers are errors of one line."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, TypeVar

import transformers
from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.util import load_file_path
from torch import accelerator, nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.logging import EmptyTqdm, set_tqdm_hook

from vocable.core.arrays import read_whole
from vocable.encoding.hub import CODE, TRUSTING, check_files, check_model, first_line, locate, pickled, remedy
from vocable.errors import ArgumentError, ModelError, VocableError
from vocable.torch_models.fuse import parts
from vocable.torch_models.layouts import check_buffers, comes_with_code, reading_layouts

MAX_SIZES = {"num_hidden_layers": 1000, "hidden_size": 1 << 20, "intermediate_size": 1 << 22, "vocab_size": 1 << 25}


def check_device(device: str | None) -> None:
    """Raise `ArgumentError` for a device that PyTorch does not find."""
    best = accelerator.current_accelerator(check_available=True)
    known = ["cpu"]
    if best is not None:
        known += [best.type, *(f"{best.type}:{number}" for number in range(accelerator.device_count()))]
    if device is not None and device not in known:
        raise ArgumentError(f"device must be one that PyTorch has here ({', '.join(known)}), not {device!r}")


def check_finite(name: str | Path, model: nn.Module) -> None:
    """Raise `ModelError` if a weight of a model is not finite."""
    for key, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise ModelError(f"{name}: {key} has weights that are not finite")


def check_sizes(name: str | Path, config: object) -> Any:
    """Return a configuration; raise `ModelError` for absurd sizes: building 10 million layers would take hours."""
    for key, most in MAX_SIZES.items():
        size = getattr(config, key, 1)
        if isinstance(size, int) and not 0 < size <= most:
            raise ModelError(f"{name}: {key} {size} in config.json, which no model has")
    return config


def check_settings(name: str | Path, transformer: Transformer) -> None:
    """Raise `ModelError` for a setting in a sparse encoder's files that makes encoding impossible."""
    config, tokenizer = transformer.auto_model.config, transformer.tokenizer
    limits, power, kept = (getattr(config, key, None) for key in ("active_terms", "query_idf", "special_terms"))
    by_role = limits is None or (isinstance(limits, Mapping) and {*limits} <= {"query", "document"})
    counts = by_role and all(_is_number(limit, 1, int) for limit in (limits or {}).values())
    task, query, document = transformer.transformer_task, transformer.query_length, transformer.document_length
    longest, tokens = tokenizer.model_max_length, "a number of tokens"
    settings, terms = "sentence_bert_config.json", "a number of terms for query, document or both"
    for file, key, value, expected, valid in (
        (settings, "transformer_task", task, "fill-mask", task == "fill-mask"),
        (settings, "query_length", query, tokens, _is_number(query or 1, 1, int)),
        (settings, "document_length", document, tokens, _is_number(document or 1, 1, int)),
        ("tokenizer_config.json", "model_max_length", longest, tokens, _is_number(longest, 1)),
        ("config.json", "query_idf", power, "a number, 0 or more", power is None or _is_number(power, 0)),
        ("config.json", "special_terms", kept, "true or false", isinstance(kept, bool | None)),
        ("config.json", "active_terms", limits, terms, counts),
    ):
        if not valid:
            raise ModelError(f"{name}: {key} in {file} must be {expected}, not {value!r}")


def _is_number(value: object, least: float, kind: Any = int | float) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and least <= value < math.inf


SHOWN_WEIGHTS = 3  # weights that a message names
LAYER_NAME = re.compile(r"layers?(_groups)?\.\d+\.")  # in the name of an encoder's weight
# Heads of a pre-training, which say nothing of terms.
UNTRAINED = re.compile("pooler|seq_relationship|(discriminator|mask|lm)_predictions|output_vocabulary")
# Only weights in a format without code are read; weights of another shape are reported, not raised.
STRICT = {"use_safetensors": True, "ignore_mismatched_sizes": True}
NEW_HEAD = "load(..., new_head=True), --new-head, or head: new in a recipe gives it a new one"
SAVED_AS = "config_sentence_transformers.json"  # of a model that sentence-transformers saved
# Kinds of the classes of sentence-transformers, and of the endings of the architectures of transformers.
MODEL_KINDS = {"CrossEncoder": "cross", "SentenceTransformer": "dense", "SparseEncoder": "sparse"}
MODEL_KINDS |= {"ForSequenceClassification": "cross", "ForMaskedLM": "sparse"}
# Beginnings of the messages of transformers about a missing tokenizer.
NO_TOKENIZER = ("Unrecognized processing class", "Couldn't instantiate the backend tokenizer")

# Packages that cut Japanese words, by `word_tokenizer_type` in tokenizer_config.json.
JAPANESE = {"mecab": "fugashi", "sudachi": "sudachipy", "jumanpp": "rhoknp"}

M = TypeVar("M")

_patching = RLock()  # two threads that load models would restore each other's patch


@contextmanager
def without_bars() -> Iterator[None]:
    """Hide transformers' progress bar for reading weights within the context; other bars stay."""
    with _patching:

        def show(make: Callable[..., object], given: tuple[object, ...], options: dict[str, object]) -> Any:
            if options.get("desc") == "Loading weights":
                return EmptyTqdm(*given, **options)
            return make(*given, **options) if previous is None else previous(make, given, options)

        previous = set_tqdm_hook(show)
        try:
            yield
        finally:
            set_tqdm_hook(previous)


def open_model(name: str | Path, open_place: Callable[..., M], device: str | None = None) -> M:
    """Load a model with `open_place`, and raise `ModelError` if a library would invent weights or a tokenizer.

    `name` and `device` are as in `load`; `open_place(place, device=device, trust_remote_code=trust_remote_code)` loads
    the model of a folder or a Hub id.
    """
    check_device(device)
    place = locate(name)

    def open_whole() -> M:
        check_model(name)
        with _errors_in_one_line(name), reading_layouts(), _weights_checked(name), without_bars():
            return open_place(place, device=device, trust_remote_code=TRUSTING.get())

    model = read_whole(open_whole, place)
    if isinstance(model, nn.Module):
        check_finite(name, model)
        for module in model.modules():
            _check_tokenizer(name, getattr(module, "tokenizer", None), getattr(module, "auto_model", None))
    return model


def model_kind(name: str | Path) -> str:
    """Return cross, dense or sparse, as a model was saved; for other models, the architectures in the configuration."""
    with _errors_in_one_line(name), reading_layouts():
        if (saved := load_file_path(place := locate(name), SAVED_AS)) is not None:
            kind = json.loads(Path(saved).read_text(encoding="utf-8")).get("model_type", "SentenceTransformer")
            return MODEL_KINDS.get(kind, str(kind))
        if load_file_path(place, "modules.json") is not None:
            return "dense"  # saved before other kinds existed
        architectures = AutoConfig.from_pretrained(place, trust_remote_code=TRUSTING.get()).architectures or []
    known = (kind for name in architectures for ending, kind in MODEL_KINDS.items() if name.endswith(ending))
    return next(known, ", ".join(architectures) or "no architecture")


def load_tokenizer(name: str | Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a name, whether its folder also has a model or not."""
    check_files(name)
    with _errors_in_one_line(name, "no tokenizer could be read here ({})"), reading_layouts():
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            locate(name), trust_remote_code=TRUSTING.get()
        )
    _check_tokenizer(name, tokenizer)
    return tokenizer


class Target(NamedTuple):
    """A vocabulary to move to."""

    tokenizer: PreTrainedTokenizerBase
    model: PreTrainedModel | None  # None for a tokenizer alone; without an output layer for an encoder without a head


def load_target(target: str | Path | SparseEncoder | PreTrainedTokenizerBase) -> Target:
    """Return the tokenizer of a name, with any model, in float32; or the parts of a loaded target."""
    if isinstance(target, SparseEncoder):
        mlm, tokenizer, *_ = parts(target)
        return Target(tokenizer, mlm)
    if not isinstance(target, str | Path):
        return Target(target, None)
    # A tokenizer without a model is a target, too. A model that needs code or has pickled weights is an error.
    tokenizer, place = load_tokenizer(target), locate(target)
    trust = {"trust_remote_code": TRUSTING.get()}
    settings: dict[str, object] = {"dtype": "float32", "output_loading_info": True, **STRICT, **trust}
    try:
        with reading_layouts(), without_bars():
            config = check_sizes(target, AutoConfig.from_pretrained(place, **trust))
            model, loading = AutoModelForMaskedLM.from_pretrained(place, config=config, **settings)
            if loading["missing_keys"] and _is_headless(model, loading["missing_keys"]):  # the head is random
                model, loading = AutoModel.from_pretrained(place, **settings)
    except SafetensorError as error:
        raise ModelError(f"{target}: its weights are damaged ({error})") from error
    except (OSError, ValueError, HFValidationError) as error:  # no configuration, or no weights
        advice = remedy(target, error)
        if advice in (CODE, pickled(target)):
            raise ModelError(f"{target}: {advice}") from error
        return Target(tokenizer, None)
    # A model that was found must be whole.
    _check_weights(target, model, **loading)
    check_buffers(target, model)
    check_finite(target, model)
    _check_tokenizer(target, tokenizer, model)
    return Target(tokenizer, model)


def _is_headless(mlm: PreTrainedModel, missing: Collection[str]) -> bool:
    """Return whether all weights of the head were missing, except weights shared with the encoder."""
    encoder = {id(parameter) for parameter in mlm.base_model.parameters()}
    named = list(mlm.named_parameters(remove_duplicate=False))
    lost = {id(parameter) for name, parameter in named if name in missing}
    return all(id(parameter) in encoder | lost for _, parameter in named)


def _check_tokenizer(name: str | Path, tokenizer: object, model: object = None) -> None:
    """Raise `ModelError` for a tokenizer with special tokens only, or with more tokens than the model's embeddings.

    transformers makes up a tokenizer with special tokens only for a folder without a tokenizer.
    """
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        return
    vocabulary = tokenizer.get_vocab()
    if set(vocabulary) <= set(tokenizer.all_special_tokens):
        raise ModelError(f"{name}: its tokenizer is {_tokenizer_state(name)}")
    if max(vocabulary.values()) >= (rows := getattr(getattr(model, "config", None), "vocab_size", math.inf)):
        raise ModelError(f"{name}: its tokenizer has {max(vocabulary.values()) + 1} tokens, its embeddings {rows} rows")


def _tokenizer_state(name: str | Path) -> str:
    settings = dict[str, Any]()
    with suppress(OSError, ValueError, TypeError, VocableError):
        settings = json.loads(Path(str(load_file_path(locate(name), "tokenizer_config.json"))).read_bytes())
    if package := JAPANESE.get(str(settings.get("word_tokenizer_type"))):
        dictionary = str((settings.get("mecab_kwargs") or {}).get("mecab_dic") or "unidic_lite")
        needed = [package, *([dictionary] if package == "fugashi" else [])]
        if any(find_spec(module) is None for module in needed):
            packages = " ".join(needed).replace("_", "-")
            return f"{settings.get('tokenizer_class')} in tokenizer_config.json: pip install {packages}"
    return "damaged" if Path(name, "tokenizer.json").exists() else "missing"


def _check_weights(
    name: str | Path,
    model: PreTrainedModel,
    missing_keys: Collection[str],
    unexpected_keys: Collection[str],
    mismatched_keys: Collection[tuple[str, Sequence[int], Sequence[int]]],
    **_: object,
) -> None:
    """Raise `ModelError`, with names of weights, if transformers has invented weights or skipped layers.

    A pooler may be missing unless the model classifies, and so may keys that are not parameters.
    """
    for key, shape, wanted in sorted(mismatched_keys):
        raise ModelError(f"{name}: {key} has the shape {list(shape)}, config.json says {list(wanted)}")
    # An unexpected weight below one of these parts belongs to a layer that config.json leaves out.
    kind, prefix = type(model).__name__, model.base_model_prefix
    tops = {prefix, *(part for part, _ in model.base_model.named_children())}
    for key in sorted(unexpected_keys):
        if key.partition(".")[0] in tops and LAYER_NAME.search(key):
            raise ModelError(f"{name}: config.json has no place for {key}, a weight of the encoder")
    # Weights that transformers has drawn at random.
    classifies = kind.endswith("ForSequenceClassification")
    parameters = {key for key, _ in model.named_parameters(remove_duplicate=False)}
    lost = sorted(key for key in missing_keys if key in parameters and (classifies or "pooler." not in key))
    if not lost:
        return
    rest = len(lost) - SHOWN_WEIGHTS
    named = ", ".join(lost[:SHOWN_WEIGHTS]) + (f" and {rest} more" if rest > 0 else "")
    # Only the head is missing: it has another layout, or does not exist.
    if kind.endswith("ForMaskedLM") and not any(key.startswith(f"{prefix}.") for key in lost):
        others = (
            key for key in sorted(unexpected_keys) if key.endswith("weight") and key.partition(".")[0] not in tops
        )
        if trained := [key for key in others if not UNTRAINED.search(key)]:
            fault = (
                f"its weights have the trained head {trained[0]}, which vocable cannot read; a new head would lose it"
            )
            raise ModelError(f"{name}: {fault}")
        raise ModelError(f"{name} has no masked-language-model head, or not all of it (no {named}): {NEW_HEAD}")
    raise ModelError(f"{name}: weights are missing: {named}")


@contextmanager
def _errors_in_one_line(name: str | Path, what: str = "{}") -> Iterator[None]:
    """Turn errors of the libraries within the context into `ModelError`s of one line that name the model."""
    try:
        yield
    except VocableError:
        raise
    except json.JSONDecodeError as error:
        raise ModelError(f"{name}: its configuration is damaged ({error})") from error
    except (OSError, ValueError, HFValidationError, SafetensorError) as error:
        if str(error).startswith(NO_TOKENIZER):
            raise ModelError(f"{name}: its tokenizer is {_tokenizer_state(name)}") from error
        raise ModelError(f"{name}: {what.format(remedy(name, error) or first_line(error))}") from error
    except Exception as error:  # the libraries raise errors of any type for files that do not fit each other
        if isinstance(error, ImportError) and "pip install" in (state := _tokenizer_state(name)):
            raise ModelError(f"{name}: its tokenizer is {state}") from error
        message = " ".join([f"{type(error).__name__}:", *str(error).split()])
        if TRUSTING.get() and comes_with_code(locate(name)):
            fault = f"the code that comes with it does not run with transformers {transformers.__version__}"
            raise ModelError(f"{name}: {fault} ({message})") from error
        raise ModelError(f"{name}: its files are damaged ({message})") from error


@contextmanager
def _weights_checked(name: str | Path) -> Iterator[None]:
    """Let `from_pretrained` check the weights of every model within the context.

    It patches transformers: sentence-transformers calls `from_pretrained` itself, drops its `output_loading_info`, and
    has no hook to ask for it, in SparseEncoder, CrossEncoder and SentenceTransformer alike.
    """
    with _patching:
        stock = PreTrainedModel.__dict__["from_pretrained"]

        def checked(cls: object, /, *args: Any, output_loading_info: bool = False, **settings: object) -> Any:
            check_sizes(name, settings.get("config"))
            model, loading = stock.__func__(cls, *args, output_loading_info=True, **settings | STRICT)
            _check_weights(name, model, **loading)
            check_buffers(name, model)
            return (model, loading) if output_loading_info else model

        PreTrainedModel.from_pretrained = classmethod(checked)
        try:
            yield
        finally:
            PreTrainedModel.from_pretrained = stock
