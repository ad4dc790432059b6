"""Load models by name, and choose the library that computes them: PyTorch, or the runtime of an exported graph.

A model has a graph if `vocable export-model` wrote its folder; the built-in models have a graph and weights.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from vocable.encoding.graph import GraphModel, is_exported
from vocable.encoding.graph_settings import GRAPH_SETTINGS, has_weights
from vocable.encoding.hub import (
    BUILT_IN_MODEL,
    BY_LOOKUP,
    GRAPH_FOLDERS,
    WEIGHTS,
    check_files,
    check_model,
    locate,
)
from vocable.encoding.models import Model, encoding_model, is_model
from vocable.encoding.pooling import PoolingName
from vocable.encoding.protocol import EncodingModel
from vocable.encoding.torch_library import torch_library
from vocable.encoding.vectors import VectorsMeta
from vocable.errors import ArgumentError, MissingExtraError, ModelError
from vocable.options import Activation, DType, Runtime, checked

TORCH = "sentence_transformers"  # which needs torch
GPU_DEVICES = "/dev/nvidiactl", "/dev/kfd"  # of NVIDIA and AMD on Linux


@checked
def load(
    name: str | Path = BUILT_IN_MODEL,
    *,
    pooling: PoolingName | None = None,
    activation: Activation | None = None,
    new_head: bool = False,
    special_terms: bool = False,
    device: str | None = None,
    runtime: Runtime | None = None,
    trust_remote_code: bool = False,
) -> Model:
    """Load a sparse encoder: a `SparseEncoder`, or a model that only encodes.

    Models that only encode are `GraphModel`, which needs no PyTorch, and `TokenWeightModel` (BGE-M3). A `SparseEncoder`
    computes in float32, with a head that never holds the logits.

    Args:
        name: "vocable-mini" (the built-in model), "vocable-mini-doc" (the same, with looked-up queries), a folder, a
            Hub id, or `package:NAME/FOLDER`: a saved `SparseEncoder`, a plain masked-language-model checkpoint, which
            gets max pooling, or an exported model.
        pooling: by default the model's own (docs/head.md).
        activation: relu is log(1 + ReLU(x)), log1p_relu is log(1 + log(1 + ReLU(x))); by default the model's own.
        new_head: give an encoder a new masked-language-model head, which replaces an existing one. Its transform is the
            identity, its decoder is tied to the input embeddings, its bias is zero.
        special_terms: let special and unused tokens, such as [CLS] and [UNK], be terms. A model that was saved without
            them does not get them back.
        device: device of the models, such as cpu, cuda or cuda:1; by default the best available.
        runtime: torch, or onnx or openvino for a model with such a graph; by default torch, where it is installed and
            the model has weights for it.
        trust_remote_code: run code that comes with the model.

    Raises:
        ModelError: the model does not exist or is not a sparse encoder, its weights or tokenizer are missing, damaged
            or do not fit its configuration, or its head cannot be bypassed.
        MissingExtraError: PyTorch is needed and not installed.
        DataError: the terms of its output vocabulary are damaged.
        ArgumentError: the pooling, activation, device or runtime does not exist, or an exported model does not have it.
    """
    changes = {"pooling": pooling, "activation": activation, "new_head": new_head, "special_terms": special_terms}
    # A graph is used if it is asked for, or if PyTorch or the weights are missing.
    graph = None if runtime == "torch" else graph_folder(name)
    if runtime is None and graph is not None and _has_torch() and _has_weights(name, graph):
        graph = None
    if graph is not None:
        model = _open_graph(name, graph, runtime, device, changes)
        model.load_graphs()
        return model
    # The first kind of model that knows the files opens them. The last kind opens any model, and makes new heads.
    if runtime not in (None, "torch"):
        raise ArgumentError(f"{name} has no graph for the runtime {runtime}: vocable export-model writes one")
    check_model(name)  # before PyTorch, whose import takes seconds
    if not _has_torch():
        raise MissingExtraError(f"{name} needs PyTorch: pip install 'vocable[train]'")
    kinds, place = torch_library().kinds(), locate(name)
    kind = kinds[-1] if new_head else next(kind for kind in kinds if kind.opens(place))
    return kind.load(name, changes, device=device, trust_remote_code=trust_remote_code)


def load_encoder(
    model: Model | str | Path, device: str | None = None, runtime: Runtime | None = None, dtype: DType = "auto"
) -> EncodingModel:
    """Return a model, or load the model of a name, for encoding.

    A model with a graph runs as a graph on a CPU, because it is faster there, and in PyTorch on a GPU or with a `dtype`
    other than "auto". `runtime` overrides this choice.
    """
    if is_model(model):
        if device is not None or runtime is not None:
            raise ArgumentError("device and runtime go with the name of a model: this one is loaded already")
        return encoding_model(model)
    on_cpu = device == "cpu" or (device is None and not (_has_torch() and _has_gpu()))
    wanted = on_cpu and dtype == "auto" if runtime is None else runtime != "torch"
    if wanted and (folder := graph_folder(model)) is not None:
        graph = _open_graph(model, folder, runtime, device, {})
        graph.begin_loading()
        return graph
    return encoding_model(load(model, device=device, runtime=runtime))


def load_model(model: Model | str | Path, device: str | None = None, runtime: Runtime | None = None) -> Model:
    """Return a model, or load the model of a name."""
    return model if is_model(model) else load(model, device=device, runtime=runtime)


def model_of(meta: VectorsMeta, moved: str | Model | None = None) -> Model:
    """Return the model that made vectors, or `moved` instead; raise `ArgumentError` for another vocabulary."""
    model = load_model(moved or meta.model)
    if encoding_model(model).vocabulary != meta.vocabulary:
        name = moved if isinstance(moved, str) else meta.model
        raise ArgumentError(f"model {name}: the vectors have another vocabulary")
    return model


def _open_graph(
    name: str | Path, folder: Path, runtime: Runtime | None, device: str | None, changes: Mapping[str, object]
) -> GraphModel:
    if changes.get("new_head") or changes.get("special_terms"):
        raise ModelError(f"{name}: an exported model only encodes: its head cannot be changed")
    if changes.get("pooling") or changes.get("activation"):
        message = "pooling and activation of an exported model cannot be changed: they are inside its graph"
        raise ArgumentError(f"{name}: {message}")
    if device not in (None, "cpu"):
        raise ArgumentError(f"device must be cpu for an exported model, not {device!r}")
    check_files(folder)
    table = Path(locate(BY_LOOKUP), "query_weights.safetensors") if name == BY_LOOKUP else None
    built_in = str(name) if name in (BUILT_IN_MODEL, BY_LOOKUP) or not Path(name).is_dir() else None
    model = GraphModel(folder, built_in, query_weights=table)
    if runtime not in (None, model.runtime):
        raise ArgumentError(f"{name} has no graph for the runtime {runtime}, but one for {model.runtime}")
    return model


def graph_folder(name: str | Path) -> Path | None:
    """Return the folder of a model with a graph, downloaded from the Hub if necessary; None without a graph."""
    place = locate(BUILT_IN_MODEL if name == BY_LOOKUP else name)
    if Path(place).is_dir():
        return Path(place) if is_exported(place) else None
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    with suppress(HfHubHTTPError, HFValidationError, OSError):  # no such file, or no network
        hf_hub_download(place, GRAPH_SETTINGS)
        files = ["*.json", "*.jsonl", "*.safetensors", *(f"*{folder}/*" for folder in GRAPH_FOLDERS)]
        return Path(snapshot_download(place, allow_patterns=files, ignore_patterns=["*model*.safetensors"]))
    return None


def _has_weights(name: str | Path, folder: Path) -> bool:
    """Return whether a model with a graph also has weights for PyTorch, which are not downloaded with the graph."""
    if Path(locate(BUILT_IN_MODEL if name == BY_LOOKUP else name)).is_dir():
        return has_weights(folder)
    from huggingface_hub import file_exists

    return file_exists(str(name), WEIGHTS)


def _has_torch() -> bool:
    return find_spec(TORCH) is not None


def _has_gpu() -> bool:
    """Return whether PyTorch finds a GPU; import it, which is slow, only on a machine that may have a GPU."""
    if not (any(Path(device).exists() for device in GPU_DEVICES) or shutil.which("nvidia-smi")):
        return False
    import torch

    return torch.cuda.is_available()
