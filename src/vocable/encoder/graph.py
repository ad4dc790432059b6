"""Exported models: a graph of ONNX or OpenVINO, with its pooling, in place of a PyTorch model.

`vocable.encoder.export` writes the graph beside the other files of a saved SparseEncoder. Such a model only encodes;
verbs that read or change weights refuse it.

Letters: b texts, s tokens, v output terms.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from functools import cached_property
from hashlib import blake2b, file_digest
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling
from sentence_transformers.util import load_dir_path, load_file_path
from torch import Tensor, nn
from transformers import PreTrainedConfig

from vocable.encoder.output_vocabulary import (
    TERMS,
    OutputVocabulary,
    OutputVocabularyTransformer,
    read_terms,
)
from vocable.errors import ModelError, require_extra
from vocable.storage import regular

# The file of a graph, in float32 and with 8-bit weights, as Transformers.js and Optimum name it.
GRAPHS = {
    "onnx": ("onnx/model.onnx", "onnx/model_quantized.onnx"),
    "openvino": ("openvino/openvino_model.xml", "openvino/openvino_model_int8.xml"),
}
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT = "weights"  # of all terms; each other output is of one role

Run = Callable[[dict[str, NDArray[np.int64]]], NDArray[np.float32]]


class Graph(nn.Module):
    """A graph in the place of a masked language model: token ids [b, s] become term weights [b, v].

    Its one parameter is the digest of its files, so that a changed graph has another checksum of weights.
    """

    def __init__(self, path: Path, config: PreTrainedConfig, terms: list[str] | None = None) -> None:
        super().__init__()
        self.path, self.config, self.name_or_path = path, config, config.name_or_path
        digest = blake2b(digest_size=8)
        for file in sorted(path.parent.iterdir()):
            with regular(file).open("rb") as content:
                digest.update(file_digest(content, blake2b).digest())
        self.digest = nn.Parameter(torch.tensor(list(digest.digest()), dtype=torch.float32), requires_grad=False)
        inputs, size, _ = self._session
        if not set(inputs) <= set(INPUTS) or not isinstance(size, int):
            raise ModelError(f"{path}: not a graph that vocable export-model wrote: it reads {', '.join(inputs)}")
        # Sizes and names without weights, hidden from the module's parameters.
        self.__dict__["decoder"] = nn.Linear(1, size, device="meta")
        if terms is not None:
            weight = torch.empty(size, 1, device="meta")
            self.__dict__["output_vocabulary"] = OutputVocabulary(terms, weight, None)

    @cached_property
    def _session(self) -> tuple[list[str], Any, Run]:
        """The names of the inputs, the number of terms, and the function that runs the graph; a copy makes its own."""
        return (_onnx if self.path.suffix == ".onnx" else _openvino)(self.path)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_session"}

    def get_output_embeddings(self) -> nn.Linear:
        """Return a layer with the size of the output, without weights."""
        layer: nn.Linear = self.__dict__["decoder"]
        return layer

    def forward(self, **features: Tensor) -> Tensor:
        """Return the weights [b, v] from `input_ids` [b, s] and other inputs of the same shape."""
        names, _, run = self._session
        ids = features["input_ids"]
        given = {name: features.get(name, torch.zeros_like(ids)).cpu().numpy() for name in names}
        return torch.from_numpy(run(given))

    def save_pretrained(self, folder: str, **_: object) -> None:
        """Write the configuration and the graph."""
        self.config.save_pretrained(folder)
        target = Path(folder) / self.path.parent.name
        if target.resolve() != self.path.parent.resolve():
            shutil.copytree(self.path.parent, target)


class ExportedTransformer(OutputVocabularyTransformer):
    """Transformer of sentence-transformers over a graph, which returns sentence embeddings: it includes the pooling."""

    def __init__(self, model_name_or_path: str, **settings: object) -> None:
        Transformer.__init__(self, model_name_or_path, **settings)
        self.unpad_inputs = False

    def _load_model(self, place: str, task: str, config: Any, backend: str, adapter: bool, **given: Any) -> Any:
        where = {key: given[key] for key in ("token", "revision", "local_files_only") if key in given}
        inside = given.get("subfolder") or ""
        for name in chain(*GRAPHS.values()):
            path = load_file_path(place, Path(inside, name).as_posix(), **where)
            if path is not None:
                load_dir_path(place, Path(inside, name).parent.as_posix(), **where)  # from the Hub, the files beside it
                terms = load_file_path(place, Path(inside, TERMS).as_posix(), **where)
                return Graph(Path(path), config, None if terms is None else read_terms(terms))
        raise ModelError(f"{place}: its graph is missing, one of {', '.join(chain(*GRAPHS.values()))}")

    def forward(self, features: dict[str, object], **_: object) -> dict[str, object]:
        """Store the weights [b, v] as the pooling would."""
        features["sentence_embedding"] = self.auto_model(
            **{name: features[name] for name in INPUTS if name in features}
        )
        return features


class ExportedPooling(SpladePooling):
    """The name and the activation of the pooling inside a graph."""

    def forward(self, features: dict[str, object]) -> dict[str, object]:
        """Return the features as they are."""
        return features


EXPORTED = (ExportedTransformer, ExportedPooling)


def exported(model: nn.Module) -> bool:
    """Return whether an encoder of `model` is a graph."""
    return any(isinstance(module, ExportedTransformer) for module in model.modules())


def refuse_exported(model: SparseEncoder) -> None:
    """Raise `ModelError` for an exported model."""
    if exported(model):
        raise ModelError("an exported model only encodes: adapt or train the model that it was made from")


def _onnx(path: Path) -> tuple[list[str], Any, Run]:
    ort = require_extra("onnxruntime", "onnx")
    options = ort.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    sizes = [output.shape[-1] for output in session.get_outputs() if output.name == OUTPUT]
    alone = ort.RunOptions()
    alone.only_execute_path_to_fetches = True
    names = [one.name for one in session.get_inputs()]
    return names, sizes[0] if sizes else None, lambda given: session.run([OUTPUT], given, alone)[0]


def import_openvino() -> ModuleType:
    """Import OpenVINO without its telemetry, which would report its use over the network."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    return require_extra("openvino", "openvino")


def _openvino(path: Path) -> tuple[list[str], Any, Run]:
    openvino = import_openvino()
    # On a CPU with bfloat16, OpenVINO would compute in it by default, with other results than those checked.
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    core = openvino.Core()
    graph = core.read_model(path)
    found = [result for result in graph.get_results() if OUTPUT in result.output(0).get_names()]
    alone = openvino.Model(found, graph.get_parameters(), OUTPUT)
    compiled = core.compile_model(alone, "CPU", {"PERFORMANCE_HINT": "LATENCY", **settings})
    size = compiled.output(0).partial_shape[1]

    def run(given: dict[str, NDArray[np.int64]]) -> NDArray[np.float32]:
        result: NDArray[np.float32] = compiled.create_infer_request().infer(given)[0]  # threads do not share requests
        return result.copy()

    return [one.get_any_name() for one in compiled.inputs], size.get_length() if size.is_static else None, run
