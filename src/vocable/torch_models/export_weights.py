"""The checksum of the weight files of a model that is exported; the settings of the graph have it."""

from __future__ import annotations

from pathlib import Path

from sentence_transformers import SparseEncoder

from vocable.encoding.graph_weights import files_checksum, weight_files
from vocable.encoding.hub import locate
from vocable.encoding.models import model_name
from vocable.errors import VocableError
from vocable.torch_models.sparse_encoder import load_sparse_encoder
from vocable.torch_models.torch_model import TorchModel


def weights_on_disk(model: SparseEncoder) -> str:
    """Return the checksum of the files that a model was loaded from; "" if they do not hold its weights."""
    place = Path(locate(model_name(model)))
    if not (files := weight_files(place)):
        return ""
    try:
        on_disk, wanted = TorchModel(load_sparse_encoder(str(place), device="cpu")), TorchModel(model)
        same = on_disk.fingerprint(wanted.dtype)["weights"] == wanted.fingerprint()["weights"]
    except VocableError:  # it was loaded with options that its folder does not contain
        return ""
    return files_checksum(files) if same else ""
