"""Commands that adapt a model: inspect, rescale, transfer, expand, vocabulary, pretrain, calibrate, inference-free."""

from __future__ import annotations

from vocable.cli import adapting, asymmetric, expanding, pretraining, transferring, vocabularies
from vocable.cli.declare import Command

COMMANDS: list[type[Command]] = []
OLD = [
    adapting.inspect,
    adapting.rescale,
    transferring.transfer,
    expanding.expand,
    vocabularies.vocabulary,
    pretraining.pretrain,
    pretraining.calibrate,
    asymmetric.inference_free,
]
