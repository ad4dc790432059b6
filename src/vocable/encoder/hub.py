"""Open what a name stands for with the host libraries, and refuse what they would make up, in one line.

A name is "vocable-mini" (the built-in model), "vocable-mini-doc" (the same, with queries by lookup),
`package:NAME/FOLDER` of an installed package, a folder, or a Hub id.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, TypeVar

from huggingface_hub import HfApi, file_exists, metadata_load, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError
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
from yaml import YAMLError

from vocable.arrays import read_whole
from vocable.encoder.fuse import parts
from vocable.errors import ArgumentError, ModelError, VocableError

BUILT_IN = "vocable-mini"
BY_LOOKUP = "vocable-mini-doc"  # its folder has the weights of queries; documents are encoded by the other
CARD = "README.md"
SHOWN = 3  # weights that a message names
# Files of a model that the host libraries open.
READ = {".json", ".jsonl", ".safetensors", ".txt", ".model", ".onnx", ".xml"}
LARGEST = {"num_hidden_layers": 1000, "hidden_size": 1 << 20, "intermediate_size": 1 << 22, "vocab_size": 1 << 25}
LAYER = re.compile(r"layers?(_groups)?\.\d+\.")  # in the name of an encoder's weight
# Of a checkpoint only weights that run no code are read; of another shape they are reported, not raised.
STRICT = {"use_safetensors": True, "ignore_mismatched_sizes": True}
PICKLED = (
    "weights are read from safetensors only, as pickles can run code: convert pytorch_model.bin in transformers, "
    "AutoModelForMaskedLM.from_pretrained(NAME).save_pretrained(FOLDER)"
)
CODE = (
    "it comes with code of its own, which runs if you say so: vocable --trust-remote-code, load(..., "
    "trust_remote_code=True), or trust_remote_code: true in a recipe"
)
# Words by which the host libraries' messages are known.
WEIGHTS_SIGN, CODE_SIGN = "model.safetensors", "trust_remote_code"
WEIGHTS, WEIGHTS_INDEX, PICKLES = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
WHOLE = "save, copy or download the model again, with all of its files"
GRAPH_FOLDERS = ("onnx", "openvino")  # of which every file is part of the model
NEW_HEAD = "load(..., new_head=True), --new-head, or head: new in a recipe gives it a new one"
# How the host libraries begin to say, at length, that there is no tokenizer.
NO_TOKENIZER = ("Unrecognized processing class", "Couldn't instantiate the backend tokenizer")

M = TypeVar("M")

_OPENING = RLock()  # two threads that open models would restore each other's
TRUSTING: ContextVar[bool] = ContextVar("trusting", default=False)


@contextmanager
def trusting(remote_code: bool) -> Iterator[None]:
    """Within the context code that comes with a model is run, if `remote_code` or a context around it says so."""
    before = TRUSTING.set(remote_code or TRUSTING.get())
    try:
        yield
    finally:
        TRUSTING.reset(before)


def locate(name: str | Path) -> str:
    """Return where the files of a model are: a folder or a Hub id."""
    if name in (BUILT_IN, BY_LOOKUP):
        return str(files("vocable") / "models" / str(name))
    text = str(name)
    if text.startswith("package:"):
        package, _, folder = text.removeprefix("package:").partition("/")
        if not all(part.isidentifier() for part in package.split(".")) or not _inside(folder):
            raise ModelError(f"{text}: the name is not package:NAME/FOLDER, a folder within an installed package")
        found = None
        with suppress(ImportError):  # of a part of a module
            found = find_spec(package)
        if found is None or not found.submodule_search_locations:
            raise ModelError(f"{text}: the package {package} is not installed: pip install {package.partition('.')[0]}")
        if not (place := Path(str(files(package)), folder)).exists():
            raise ModelError(f"{text}: the package has no {folder}")
        return str(place)
    if not text or not Path(text).exists():
        _check_hub(text)
    return text


def _inside(path: str) -> bool:
    """Return whether a relative path stays within its folder, as it is spelled: links are followed."""
    return not Path(path).is_absolute() and ".." not in Path(path).parts


def _readable(name: str | Path) -> str:
    """Return the place of a name; `ModelError` for a folder with files that cannot or must not be read.

    These are pickled weights alone, pipes and the like, and an index of weights that names files elsewhere.
    """
    place = Path(locate(name))
    for path in place.rglob("*") if place.is_dir() else ():
        graph = path.parent.name in GRAPH_FOLDERS and not path.is_dir()
        if (path.suffix in READ or graph) and not path.is_file():
            raise ModelError(f"{path}: not a regular file")
        if path.name == WEIGHTS_INDEX:
            _check_index(name, path)
    if any(place.glob("pytorch_model*.bin")) and not any(place.glob("*.safetensors")):
        raise ModelError(f"{name}: {PICKLED}")
    return locate(name)


def _check_index(name: str | Path, index: Path) -> None:
    """Raise `ModelError` if an index of weights names files that are missing or outside the model's folder."""
    try:
        shards = set(json.loads(index.read_bytes())["weight_map"].values())
        outside = [shard for shard in shards if not _inside(shard)]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"{index}: the index of the weights is damaged ({_first_line(error)})") from error
    if outside:
        raise ModelError(f"{index}: the index names weights outside the model's folder: {min(outside)}")
    if missing := [shard for shard in shards if not (index.parent / shard).is_file()]:
        raise ModelError(f"{name}: weights are missing, {min(missing)}: {WHOLE}")


@contextmanager
def without_bars() -> Iterator[None]:
    """Within the context transformers shows no bar for the weights that it reads; other bars stay."""
    with _OPENING:

        def show(make: Callable[..., Any], given: tuple[Any, ...], options: dict[str, Any]) -> Any:
            if options.get("desc") == "Loading weights":
                return EmptyTqdm(*given, **options)
            return make(*given, **options) if before is None else before(make, given, options)

        before = set_tqdm_hook(show)
        try:
            yield
        finally:
            set_tqdm_hook(before)


def open_model(name: str | Path, open_place: Callable[..., M], device: str | None = None) -> M:
    """Open a model with the host libraries, and refuse it where they would make up weights or a tokenizer.

    `name` and `device` are as for `load`; `open_place(place, device=device, trust_remote_code=trust_remote_code)` opens
    the model of a folder or a Hub id.
    """
    check_device(device)
    place = locate(name)

    def open_whole() -> M:
        _readable(name)
        if Path(place).is_dir() and not any((Path(place) / file).exists() for file in ("config.json", "modules.json")):
            raise ModelError(f"{name}: no model in this folder (neither config.json nor modules.json)")
        with _reading(name), _weights_whole(name), without_bars():
            return open_place(place, device=device, trust_remote_code=TRUSTING.get())

    model = read_whole(open_whole, place)
    if isinstance(model, nn.Module):
        check_finite(name, model)
        for module in model.modules():
            _check_tokenizer(name, getattr(module, "tokenizer", None), getattr(module, "auto_model", None))
    return model


def check_device(device: str | None) -> None:
    """Raise `ArgumentError` for a device that PyTorch does not have here."""
    best = accelerator.current_accelerator(check_available=True)
    known = ["cpu"]
    if best is not None:
        known += [best.type, *(f"{best.type}:{number}" for number in range(accelerator.device_count()))]
    if device is not None and device not in known:
        raise ArgumentError(f"device must be one that PyTorch has here ({', '.join(known)}), not {device!r}")


def check_length(model: object, max_length: int | None) -> None:
    """Raise `ArgumentError` if a model of this name has not so many positions, which its folder says: it is not opened.

    Of a Hub id, or a folder that does not say it, it is known when the model is encoded with.
    """
    if max_length is None or not isinstance(model, str | Path):
        return
    for file in Path(locate(model)).rglob("config.json"):
        with suppress(OSError, ValueError, AttributeError):  # what is damaged is said when it is opened
            longest = json.loads(file.read_bytes()).get("max_position_embeddings", max_length)
            if isinstance(longest, int) and longest < max_length:
                raise ArgumentError(f"max_length must be at most {longest}, the positions of {model}, not {max_length}")


def licence(name: str | Path) -> str | None:
    """Return the licence that the card of a model states; None where it has no card, or the card states none."""
    try:
        card = load_file_path(locate(name), CARD)
        stated = (metadata_load(card) or {}).get("license") if card else None
    except (ModelError, OSError, ValueError, YAMLError):  # what is no model's name, or no card
        return None
    return None if stated is None else str(stated)


def load_tokenizer(name: str | Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a name, whatever model is or is not there."""
    place = _readable(name)
    with _reading(name, "no tokenizer could be read here ({})"):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(place, trust_remote_code=TRUSTING.get())
    _check_tokenizer(name, tokenizer)
    return tokenizer


class Target(NamedTuple):
    """A vocabulary to move to."""

    tokenizer: PreTrainedTokenizerBase
    model: PreTrainedModel | None  # None for a tokenizer alone; without an output layer for an encoder without a head


def load_target(target: str | Path | SparseEncoder | PreTrainedTokenizerBase) -> Target:
    """Return the tokenizer of a name, with its model if there is one, in float32; or the parts of what is loaded."""
    if isinstance(target, SparseEncoder):
        mlm, tokenizer, *_ = parts(target)
        return Target(tokenizer, mlm)
    if not isinstance(target, str | Path):
        return Target(target, None)
    tokenizer, place = load_tokenizer(target), locate(target)
    trust = {"trust_remote_code": TRUSTING.get()}
    settings: dict[str, Any] = {"dtype": "float32", "output_loading_info": True, **STRICT, **trust}
    try:
        config = check_sizes(target, AutoConfig.from_pretrained(place, **trust))
        with without_bars():
            model, loading = AutoModelForMaskedLM.from_pretrained(place, config=config, **settings)
            if loading["missing_keys"] and _is_headless(model, loading["missing_keys"]):  # a random head was made up
                model, loading = AutoModel.from_pretrained(place, **settings)
    except SafetensorError as error:
        raise ModelError(f"{target}: its weights are damaged ({error})") from error
    except (OSError, ValueError, HFValidationError) as error:  # no configuration, or no weights
        remedy = _remedy(target, error)
        if remedy in (CODE, PICKLED):
            raise ModelError(f"{target}: {remedy}") from error
        return Target(tokenizer, None)
    _check_weights(target, model, **loading)
    check_finite(target, model)
    _check_tokenizer(target, tokenizer, model)
    return Target(tokenizer, model)


def check_finite(name: str | Path, model: nn.Module) -> None:
    """Raise `ModelError` if a weight of a model is not finite."""
    for key, weight in model.named_parameters():
        if not weight.isfinite().all():
            raise ModelError(f"{name}: {key} has weights that are not finite")


def check_sizes(name: str | Path, config: Any) -> Any:
    """Return a configuration whose sizes a model can have: one of 10 million layers would be built for hours."""
    for key, most in LARGEST.items():
        size = getattr(config, key, 1)
        if isinstance(size, int) and not 0 < size <= most:
            raise ModelError(f"{name}: {key} {size} in config.json, which no model has")
    return config


def check_settings(name: str | Path, transformer: Transformer) -> None:
    """Raise `ModelError` for a setting in a sparse encoder's files with which no text can be encoded."""
    config, tokenizer = transformer.auto_model.config, transformer.tokenizer
    limits, power, kept = (getattr(config, key, None) for key in ("active_terms", "query_idf", "special_terms"))
    by_role = limits is None or (isinstance(limits, Mapping) and {*limits} <= {"query", "document"})
    tokens = "a number of tokens"
    checks = [
        ("sentence_bert_config.json", "transformer_task", "fill-mask", transformer.transformer_task == "fill-mask"),
        ("sentence_bert_config.json", "query_length", tokens, _is_count(transformer.query_length or 1)),
        ("sentence_bert_config.json", "document_length", tokens, _is_count(transformer.document_length or 1)),
        ("tokenizer_config.json", "model_max_length", tokens, _is_number(tokenizer.model_max_length, least=1)),
        ("config.json", "query_idf", "a number, 0 or more", power is None or _is_number(power)),
        ("config.json", "special_terms", "true or false", isinstance(kept, bool | None)),
        (
            "config.json",
            "active_terms",
            "a number of terms for query, document or both",
            by_role and all(map(_is_count, (limits or {}).values())),
        ),
    ]
    for file, key, wanted, right in checks:
        if not right:
            owner = next(one for one in (config, tokenizer, transformer) if hasattr(one, key))
            raise ModelError(f"{name}: {key} in {file} must be {wanted}, not {getattr(owner, key)!r}")


def _is_number(given: object, least: float = 0) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and least <= given < math.inf


def _is_count(given: object) -> bool:
    return isinstance(given, int) and _is_number(given, least=1)


def _check_tokenizer(name: str | Path, tokenizer: Any, model: Any = None) -> None:
    """Refuse what transformers makes up for a folder without a tokenizer: one that knows nothing but special tokens.

    And one whose tokens the `model`, if it is given, has not all embeddings for.
    """
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        return
    vocabulary = tokenizer.get_vocab()
    if set(vocabulary) <= set(tokenizer.all_special_tokens):
        raise ModelError(f"{name}: its tokenizer is {_state(name)}")
    if max(vocabulary.values()) >= (rows := getattr(getattr(model, "config", None), "vocab_size", math.inf)):
        raise ModelError(f"{name}: its tokenizer has {max(vocabulary.values()) + 1} tokens, its embeddings {rows} rows")


def _state(name: str | Path) -> str:
    return "damaged" if Path(name, "tokenizer.json").exists() else "missing"


def _check_weights(
    name: str | Path,
    model: PreTrainedModel,
    missing_keys: Collection[str],
    unexpected_keys: Collection[str],
    mismatched_keys: Collection[tuple[str, Sequence[int], Sequence[int]]],
    **_: Any,
) -> None:
    """Refuse a model of which transformers has made up weights or left out layers; the `ModelError` names some.

    A pooler that only a classification would use may be missing, as may what is no parameter.
    """
    for key, found, wanted in sorted(mismatched_keys):
        raise ModelError(f"{name}: {key} has the shape {list(found)}, config.json says {list(wanted)}")
    kind, prefix = type(model).__name__, model.base_model_prefix
    tops = {prefix, *(part for part, _ in model.base_model.named_children())}
    for key in sorted(unexpected_keys):
        if key.partition(".")[0] in tops and LAYER.search(key):
            raise ModelError(f"{name}: config.json has no place for {key}, a weight of the encoder")
    classifies = kind.endswith("ForSequenceClassification")
    parameters = {key for key, _ in model.named_parameters(remove_duplicate=False)}
    lost = sorted(key for key in missing_keys if key in parameters and (classifies or "pooler." not in key))
    if not lost:
        return
    named = ", ".join(lost[:SHOWN]) + (f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else "")
    if kind.endswith("ForMaskedLM") and not any(key.startswith(f"{prefix}.") for key in lost):
        raise ModelError(f"{name} has no masked-language-model head, or not all of it (no {named}): {NEW_HEAD}")
    raise ModelError(f"{name}: weights are missing: {named}")


@contextmanager
def _reading(name: str | Path, what: str = "{}") -> Iterator[None]:
    """Within the context the errors of the host libraries become `ModelError`s of one line that name the model."""
    try:
        yield
    except VocableError:
        raise
    except json.JSONDecodeError as error:
        raise ModelError(f"{name}: its configuration is damaged ({error})") from error
    except (OSError, ValueError, HFValidationError, SafetensorError) as error:
        if str(error).startswith(NO_TOKENIZER):
            raise ModelError(f"{name}: its tokenizer is {_state(name)}") from error
        said = _remedy(name, error) or _first_line(error)
        raise ModelError(f"{name}: {what.format(said)}") from error
    except Exception as error:  # of files that do not fit each other, the host libraries raise whatever it comes to
        said = " ".join([f"{type(error).__name__}:", *str(error).split()])
        raise ModelError(f"{name}: its files are damaged ({said})") from error


@contextmanager
def _weights_whole(name: str | Path) -> Iterator[None]:
    """Within the context every model that is opened is checked: sentence-transformers does not report lost weights."""
    with _OPENING:
        stock = PreTrainedModel.__dict__["from_pretrained"]

        def checked(cls: Any, /, *args: Any, output_loading_info: bool = False, **settings: Any) -> Any:
            check_sizes(name, settings.get("config"))
            model, loading = stock.__func__(cls, *args, output_loading_info=True, **settings | STRICT)
            _check_weights(name, model, **loading)
            return (model, loading) if output_loading_info else model

        PreTrainedModel.from_pretrained = classmethod(checked)
        try:
            yield
        finally:
            PreTrainedModel.from_pretrained = stock


def _check_hub(name: str) -> None:
    """Ask the Hub once: the host libraries ask again and again, for more than a minute where there is no network."""
    missing = f"{name}: no such model folder"
    try:
        if try_to_load_from_cache(name, "config.json") is None:
            HfApi().model_info(name, timeout=10)
    except HFValidationError as error:  # a path
        raise ModelError(missing) from error
    except RepositoryNotFoundError as error:
        raise ModelError(f"{missing}, and no such model on the Hub") from error
    except HfHubHTTPError as error:
        raise ModelError(f"{missing}, and the Hub refuses it ({_first_line(error)})") from error
    except Exception as error:  # whatever the transport raises
        raise ModelError(f"{missing}, and the Hub cannot be asked: no network? ({_first_line(error)})") from error


def _remedy(name: str | Path, error: BaseException) -> str | None:
    """Return what to do about missing weights, and about weights or code that are only read when asked for."""
    if CODE_SIGN in str(error):
        return CODE
    if WEIGHTS_SIGN in str(error):
        return PICKLED if _has_pickles(locate(name)) else f"its weights are missing (no {WEIGHTS}): {WHOLE}"
    return None


def _has_pickles(place: str) -> bool:
    """Return whether a folder, the cache or the Hub has pickled weights of a model."""
    if Path(place).is_dir():
        return any(Path(place).rglob(PICKLES))
    with suppress(HfHubHTTPError, OSError):  # as where there is no network
        return isinstance(try_to_load_from_cache(place, PICKLES), str) or file_exists(place, PICKLES)
    return False


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _is_headless(mlm: PreTrainedModel, missing: Collection[str]) -> bool:
    """Whether not one weight of the head was there; what it shares with the encoder does not count."""
    encoder = {id(parameter) for parameter in mlm.base_model.parameters()}
    named = list(mlm.named_parameters(remove_duplicate=False))
    lost = {id(parameter) for name, parameter in named if name in missing}
    return all(id(parameter) in encoder | lost for _, parameter in named)
