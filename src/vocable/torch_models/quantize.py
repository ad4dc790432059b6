"""8-bit ONNX graphs: static rounding of the inputs of matrices, scales by column, and no overflow on any processor.

A MatMul of an input x and constant weights W becomes a product of x / s, rounded to 8 bits without a sign, and s W,
rounded to 8 bits with a sign (Xiao et al. 2022, SmoothQuant, arXiv 2211.10438: s moves the outliers of an input's
channels into the weights). The range of x / s is a constant, measured on texts: a vector does not depend on the other
texts of its batch, and the graph needs no pass over x to find its range.

Processors with AVX2 but without VNNI add the products of two neighboring channels in 16 bits. The columns' scales keep
every sum of two products within 16 bits; with 8-bit weights of the full range, some sums would be clipped.

Attention keeps the heads of a token together, which saves four copies in each layer.

Input embeddings that are tied to the decoder are looked up among its 8-bit columns, so that a graph holds them once.

Letters: b texts, s tokens, h heads, n rows (tokens), k channels of an input, m columns of its matrices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vocable.encoding.graph_sessions import import_onnxruntime
from vocable.errors import require_extra

Floats = NDArray[np.float32]
GraphInputs = Mapping[str, NDArray[np.int64]]

ROWS_OF_TEXT = 8  # rows of an input that are kept of each text
TRIED_COLUMNS = 2048  # columns of the matrices on which settings are tried
EXPONENTS = (0, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
CLIPS = (1, 0.85, 0.7, 0.55, 0.4)  # shares of the range
LARGEST_ERROR = 1.2e-3  # relative squared error of a product; with a larger error, its matrices stay in float32


class Rounding(NamedTuple):
    """The 8-bit form of an input: round(x / smoothing / scale) + zero, between 0 and 255."""

    smoothing: Floats  # [k]
    scale: np.float32
    zero: np.uint8
    error: float  # squared error of the product, relative to the product's square

    def rounded(self, rows: Floats) -> Floats:
        """Return rows [n, k] after smoothing and rounding."""
        levels = np.rint(rows / (self.smoothing * self.scale)) + self.zero
        return (np.clip(levels, 0, 255) - self.zero) * self.scale


@dataclass
class Group:
    """Inputs that share matrices, or matrices that share an input: they are rounded with the same smoothing."""

    inputs: set[str] = field(default_factory=set)
    matrices: dict[str, Floats] = field(default_factory=dict)  # [k, m] by name
    rows: list[Floats] = field(default_factory=list)  # a sample of the inputs
    lowest: Floats | float = 0.0  # [k]
    highest: Floats | float = 0.0  # [k]

    def observe(self, values: Floats) -> None:
        """Take the values [..., k] of an input into account."""
        rows = values.reshape(-1, values.shape[-1])
        self.rows.append(rows[:: max(1, len(rows) // ROWS_OF_TEXT)].copy())  # a view would keep the whole input
        self.lowest = np.minimum(self.lowest, rows.min(0))
        self.highest = np.maximum(self.highest, rows.max(0))

    def rounding(self) -> Rounding:
        """Return the smoothing and the range with the smallest error of the product."""
        # Exact products [n, c] of sampled inputs [n, k] with sampled columns [k, c] of the matrices.
        rows = np.concatenate(self.rows)
        weights = np.concatenate([*self.matrices.values()], axis=1)
        weights = weights[:, :: -(-weights.shape[1] // TRIED_COLUMNS)]
        product = rows @ weights
        power = float(np.square(product).sum()) or 1.0
        inputs = np.maximum(np.maximum(-self.lowest, self.highest), 1e-5)
        largest = np.maximum(np.abs(weights).max(1), 1e-5)
        tried = []
        for exponent in EXPONENTS:
            # Smoothing moves large inputs into the weights: (x / s) (s W) is the same product.
            smoothing = inputs**exponent / largest ** (1 - exponent) if exponent else np.ones_like(inputs)
            smoothing = (smoothing / np.exp(np.log(smoothing).mean())).astype(np.float32)
            low, high = float((self.lowest / smoothing).min()), float((self.highest / smoothing).max())
            columns, scales = rounded_columns(weights * smoothing[:, None])
            for clip in CLIPS:
                # A narrower range has finer steps, but cuts the largest inputs.
                scale = np.float32(clip * (high - low) / 255 or 1.0)
                rounding = Rounding(smoothing, scale, np.uint8(round(-low * clip / float(scale))), 0.0)
                error = np.square(rounding.rounded(rows) @ (columns * scales) - product).sum() / power
                tried.append(rounding._replace(error=float(error)))
        return min(tried, key=lambda rounding: rounding.error)


def rounded_columns(weights: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Round weights [k, m] to 8 bits, and return them with the scales [m].

    The sum of two neighboring products with inputs up to 255 fits into 16 bits: 255 * 128 < 2 ** 15.
    """
    pairs = np.pad(weights, ((0, len(weights) % 2), (0, 0))).reshape(-1, 2, weights.shape[1])
    sums = np.maximum(np.maximum(pairs, 0).sum(1), np.maximum(-pairs, 0).sum(1)).max(0)
    scales = np.maximum(sums / 127, 1e-12).astype(np.float32)  # rounding two weights adds one at most
    return np.rint(weights / scales).astype(np.int8), scales


def quantize(plain: Path, path: Path, texts: Iterable[GraphInputs]) -> None:
    """Write the graph `plain` with 8-bit matrices and embeddings; `texts` are graph inputs with one text each."""
    onnx: Any = require_extra("onnx", "train")
    graph = _Graph(onnx, plain)
    groups = graph.groups()
    graph.observe(groups, texts)
    roundings = [(group, group.rounding()) for group in groups]
    graph.rewrite([(group, rounding) for group, rounding in roundings if rounding.error <= LARGEST_ERROR])
    onnx.save(graph.model, path)


class _Graph:
    """An ONNX graph while it is rewritten."""

    def __init__(self, onnx: Any, path: Path) -> None:
        self.onnx, self.path, self.model = onnx, path, onnx.load(path)
        self.constants: dict[str, NDArray[Any]] = {
            tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in self.model.graph.initializer
        }

    def matrix(self, node: Any) -> Floats | None:
        """Return the constant weights [k, m] of a product, or None."""
        weights = self.constants.get(node.input[1]) if node.op_type in {"MatMul", "Gemm"} else None
        if weights is None or weights.ndim != 2 or weights.dtype != np.float32 or node.input[0] in self.constants:
            return None
        settings = {attribute.name: self.onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        transposed = settings.pop("transB", 0)
        if any(value != {"alpha": 1.0, "beta": 1.0, "transA": 0}[name] for name, value in settings.items()):
            return None
        return weights.T if transposed else weights

    def groups(self) -> list[Group]:
        """Return the products in groups that share an input or a matrix."""
        groups: list[Group] = []
        for node in self.model.graph.node:
            weights = self.matrix(node)
            if weights is not None:
                group = Group()
                for other in list(groups):
                    if node.input[0] in other.inputs or node.input[1] in other.matrices:
                        group.inputs |= other.inputs
                        group.matrices |= other.matrices
                        groups.remove(other)
                group.inputs.add(node.input[0])
                group.matrices[node.input[1]] = weights
                groups.append(group)
        return groups

    def observe(self, groups: list[Group], texts: Iterable[GraphInputs]) -> None:
        """Run the graph on texts, and show each group its inputs."""
        ort = import_onnxruntime()
        model = self.onnx.load(self.path)
        outputs = {output.name for output in model.graph.output}
        names = sorted(set().union(*(group.inputs for group in groups)) - outputs)
        model.graph.output.extend(self.onnx.ValueInfoProto(name=name) for name in names)
        options = ort.SessionOptions()
        options.log_severity_level = 3
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for inputs in texts:
            values = dict(zip(names, session.run(names, dict(inputs)), strict=True))
            for group in groups:
                for name in group.inputs & values.keys():
                    group.observe(values[name])

    def rewrite(self, groups: list[tuple[Group, Rounding]]) -> None:
        """Replace the products of `groups` and the look-ups in tables by their 8-bit forms."""
        # The rounding of each product's input, and of each table the rounding of the products that share its rows.
        roundings = {name: rounding for group, rounding in groups for name in group.inputs}
        nodes = list(self.model.graph.node)
        users = _users(nodes)
        self.nodes: list[Any] = []
        tables = {node.input[0]: node for node in nodes if self.looks_up(node)}
        tied = {name: self.tie(node, groups) for name, node in tables.items()}
        merged: set[str] = set()  # outputs of additions of a bias
        for node in nodes:
            if node.output[0] in merged:
                continue
            if self.looks_up(node):
                self.look_up(node, tied[node.input[0]])
            elif (weights := self.matrix(node)) is not None and node.input[0] in roundings:
                output = node.output[0]
                bias = node.input[2] if len(node.input) > 2 else ""
                # A bias that is added after the product goes into it, and the addition leaves the graph.
                follower = users.get(output, [])
                if len(follower) == 1 and follower[0].op_type == "Add" and not bias:
                    other = [name for name in follower[0].input if name != output]
                    if other and getattr(self.constants.get(other[0]), "shape", None) == weights.shape[1:]:
                        bias, output = other[0], follower[0].output[0]
                        merged.add(output)
                self.multiply(node, weights, roundings[node.input[0]], bias, output)
            else:
                self.nodes.append(node)
        self.keep_heads_together()
        # Put the new nodes into the graph, with the constants that they use.
        del self.model.graph.node[:]
        self.model.graph.node.extend(self.nodes)
        used = {name for node in self.nodes for name in node.input}
        del self.model.graph.initializer[:]
        self.model.graph.initializer.extend(
            self.onnx.numpy_helper.from_array(np.asarray(value, order="C"), name)
            for name, value in self.constants.items()
            if name in used
        )
        self.model.opset_import.append(self.onnx.helper.make_opsetid("com.microsoft", 1))

    def add(self, kind: str, inputs: list[str], output: str, domain: str = "", **settings: object) -> str:
        """Append a node, unless a node has this output already, and return the name of the output."""
        if not any(output in node.output for node in self.nodes):
            self.nodes.append(self.onnx.helper.make_node(kind, inputs, [output], output, domain=domain, **settings))
        return output

    def constant(self, name: str, value: Any) -> str:
        """Store a constant, and return its name."""
        self.constants[name] = np.asarray(value)
        return name

    def looks_up(self, node: Any) -> bool:
        """Return whether a node looks up rows of a constant table."""
        table = self.constants.get(node.input[0]) if node.op_type == "Gather" else None
        if table is None or table.ndim != 2 or table.dtype != np.float32:
            return False
        return not any(attribute.i for attribute in node.attribute)  # the axis is 0

    def tie(self, node: Any, groups: list[tuple[Group, Rounding]]) -> Rounding | None:
        """Store a table [v, k] as columns, and split them into the matrices that have its rows as columns.

        Return the rounding of the matrices; None if no matrices have these columns.
        """
        name = node.input[0]
        for group, rounding in groups:
            matrices = [*group.matrices.values()]
            if self.shape(node.output[0]) and np.array_equal(np.concatenate(matrices, axis=1).T, self.constants[name]):
                columns, scales = rounded_columns(self.constants[name].T * rounding.smoothing[:, None])
                self.constant(f"{name}_row_scales", scales[:, None])
                self.constant(f"{name}_factors", 1 / rounding.smoothing)
                sizes = self.constant(f"{name}_sizes", [weights.shape[1] for weights in matrices])
                inputs = [self.constant(f"{name}_columns", columns), sizes]
                outputs = [f"{matrix}_int8" for matrix in group.matrices]
                self.nodes.append(self.onnx.helper.make_node("Split", inputs, outputs, axis=1))
                return rounding
        return None

    def look_up(self, node: Any, tied: Rounding | None) -> None:
        """Replace a look-up by a look-up of 8-bit rows, or of `tied` columns, and of their scales."""
        (name, ids), output = node.input, node.output[0]
        if tied is None:
            table = self.constants[name]
            scales = np.maximum(np.abs(table).max(1, keepdims=True) / 127, 1e-12).astype(np.float32)
            self.constant(f"{name}_row_scales", scales)
            rows = self.constant(f"{name}_rows", np.rint(table / scales).astype(np.int8))
            levels = self.add("Gather", [rows, ids], f"{output}_int8")
        else:
            columns = self.add("Gather", [f"{name}_columns", ids], f"{output}_columns", axis=1)
            order = [*range(1, len(self.shape(output))), 0]
            levels = self.add("Transpose", [columns], f"{output}_int8", perm=order)
        levels = self.add("Cast", [levels], f"{output}_levels", to=self.onnx.TensorProto.FLOAT)
        if tied is not None:
            levels = self.add("Mul", [levels, f"{name}_factors"], f"{output}_unsmoothed")
        scale = self.add("Gather", [f"{name}_row_scales", ids], f"{output}_scales")
        self.add("Mul", [levels, scale], output)

    def multiply(self, node: Any, weights: Floats, rounding: Rounding, bias: str, output: str) -> None:
        """Round the input, multiply by 8-bit columns, and scale the result, with its bias."""
        name, matrix = node.input[:2]
        columns, scales = rounded_columns(weights * rounding.smoothing[:, None])
        inverse = self.constant(f"{name}_smoothing", (1 / rounding.smoothing).astype(np.float32))
        scale, zero = self.constant(f"{name}_scale", rounding.scale), self.constant(f"{name}_zero", rounding.zero)
        smooth = self.add("Mul", [name, inverse], f"{name}_smooth")
        # The operation of the same name in opset 23 needs ONNX Runtime 1.24.
        levels = self.add("QuantizeLinear", [smooth, scale, zero], f"{name}_uint8", "com.microsoft")
        if not any(f"{matrix}_int8" in before.output for before in self.nodes):  # it is not a part of a table
            self.constant(f"{matrix}_int8", columns)
        scales_name = self.constant(f"{matrix}_scales", scales)
        inputs = [levels, f"{matrix}_int8", scale, scales_name, zero, "", bias]
        self.add("MatMulIntegerToFloat", inputs if bias else inputs[:5], output, "com.microsoft")

    def keep_heads_together(self) -> None:
        """Let attention read and write all heads of a token together, [b, s, k], without transposed copies."""
        makers = {name: node for node in self.nodes for name in node.output}
        users = _users(self.nodes)
        nodes, replaced = list[Any](), set[str]()  # outputs that attention has now
        for node in self.nodes:
            # The tensors [b, s, k] that are split into heads before the attention, and joined after it.
            attention = node.op_type == "Attention" and len(node.input) <= 4 and len(node.output) == 1
            sources = [self.together(name, makers) for name in node.input[:3]] if attention else [None]
            joined = _joined(node, users)
            if None in sources or joined is None or len(self.shape(joined)) != 3:
                nodes += [] if replaced & {*node.output} else [node]
                continue
            # An attention that splits and joins tensors needs the numbers of heads.
            heads = {
                f"{kind}_num_heads": self.shape(name)[1] for kind, name in zip(("q", "kv"), node.input, strict=False)
            }
            settings = {
                attribute.name: self.onnx.helper.get_attribute_value(attribute) for attribute in node.attribute
            } | heads
            inputs = [*sources, *node.input[3:]]
            nodes.append(self.onnx.helper.make_node("Attention", inputs, [joined], joined, **settings))
            replaced.add(joined)
        # Drop the nodes whose outputs nothing uses, from the end.
        needed = {output.name for output in self.model.graph.output}
        for node in reversed(nodes):
            needed |= {*node.input} if needed & {*node.output} else set()
        self.nodes = [node for node in nodes if needed & {*node.output}]

    def together(self, name: str, makers: Mapping[str, Any]) -> str | None:
        """Return the tensor [b, s, k] that a tensor of heads [b, h, s, k / h] splits; None if it splits no tensor."""
        turned = makers.get(name)
        split = makers.get(turned.input[0]) if turned is not None and _swaps_heads(turned) else None
        if split is None or split.op_type != "Reshape":
            return None
        whole, heads = self.shape(split.input[0]), self.shape(name)
        whole_heads = len(whole) == 3 and len(heads) == 4 and whole[2] == heads[1] * heads[3] > 0
        return str(split.input[0]) if whole_heads else None

    def shape(self, name: str) -> list[int]:
        """Return the sizes of a tensor, 0 where they vary; [] if they are unknown."""
        known = (tensor for tensor in self.model.graph.value_info if tensor.name == name)
        return [size.dim_value for tensor in known for size in tensor.type.tensor_type.shape.dim]


def _users(nodes: Iterable[Any]) -> dict[str, list[Any]]:
    """Return the nodes that read each tensor."""
    users: dict[str, list[Any]] = {}
    for node in nodes:
        for name in node.input:
            users.setdefault(name, []).append(node)
    return users


def _joined(node: Any, users: Mapping[str, list[Any]]) -> str | None:
    """Return the tensor that joins the heads that a node writes; None if any other node reads these heads."""
    output = str(node.output[0])
    for kind in ("Transpose", "Reshape"):
        readers = users.get(output, [])
        if len(readers) != 1 or readers[0].op_type != kind or (kind == "Transpose" and not _swaps_heads(readers[0])):
            return None
        output = str(readers[0].output[0])
    return output


def _swaps_heads(node: Any) -> bool:
    """Return whether a node swaps tokens and heads, [b, s, h, k] and [b, h, s, k]."""
    return node.op_type == "Transpose" and [*node.attribute[0].ints] == [0, 2, 1, 3]
