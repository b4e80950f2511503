"""Writing a model as an ONNX file of standard operations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, fx, nn

from lingraft.errors import LingraftError
from lingraft.files import replacing
from lingraft.formats.batch_norm_form import scales_as_batch_norm
from lingraft.formats.onnx_activations import write_activation
from lingraft.formats.onnx_grafted import FORMS, Form, write_grafted
from lingraft.formats.onnx_shapes import WRITERS
from lingraft.formats.onnx_writer import OnnxWriter, Value, named
from lingraft.formats.runtime import EXPORT_TOLERANCE, Session, disagreement, random_inputs
from lingraft.model.grafted_activation import GraftedActivation
from lingraft.model.in_place import title
from lingraft.model.operations import call_of
from lingraft.model.plain import copied
from lingraft.model.sites import activation_of
from lingraft.model.tracing import trace
from lingraft.names import lookup


def export_onnx(
    model: nn.Module,
    path: str | Path,
    *,
    input_shape: Sequence[int],
    form: Form = "output",
    dynamic_batch: bool = False,
    images: Tensor | None = None,
) -> float:
    """Write `model`, grafted or not, in eval mode, to an ONNX file that needs no custom operation.

    `input_shape` is the shape of one image. `form` is how a partly grafted site is written: "output" for
    act(x)·(1−m) + x·(m·a) + m·b, "input" for act(x·(1−m)) + …, "batchnorm" for "output" with all scales and shifts as
    BatchNormalization (see docs/onnx.md for which verifier takes which; only the first two are recognized again). The
    batch dimension is 1, or open with `dynamic_batch`. The file only appears if it passes onnx's checker and
    onnxruntime agrees with the model to 1e-5 of its largest output, on random inputs and on `images` if given. Gives
    the largest difference found, as a part of the largest output.
    """
    lookup("form", form, {known: known for known in FORMS})
    shape = tuple(input_shape)
    plain = copied(model).cpu().float().eval()
    content = _build(plain, shape, form, -1 if dynamic_batch else 1)
    inputs = random_inputs(shape, 1)
    if images is not None:
        inputs = torch.cat([inputs, images.detach().cpu().float()])
    with replacing(Path(path)) as part:
        part.write_bytes(content)
        difference = disagreement(Session(content), plain, inputs, 1)
        if difference > EXPORT_TOLERANCE:
            raise LingraftError(
                f"the exported network differs from the model by {difference:.1e} of its largest output."
                " Does the model change a tensor in place that it uses again?"
            )
    return difference


def _build(model: nn.Module, input_shape: tuple[int, ...], form: Form, batch: int) -> bytes:
    """The checked content of the ONNX file."""
    traced = trace(model)
    results = _Recorder(traced).record(torch.zeros(2, *input_shape))
    writer = OnnxWriter(batch)
    known: dict[fx.Node, Any] = {}
    output: Any = None
    for node in traced.graph.nodes:
        if node.op == "output":
            output = fx.map_arg(node.args[0], known.__getitem__)
        else:
            known[node] = _write_node(writer, traced, node, known, results[node], form)
    if not isinstance(output, Value):
        raise LingraftError("the model must give one tensor that depends on its input to be exported.")
    proto = writer.model(input_shape, output)
    if form == "batchnorm":
        proto = scales_as_batch_norm(proto)
    try:
        onnx.checker.check_model(proto, full_check=True)
    except Exception as error:
        raise LingraftError(f"the model does not make a valid ONNX network ({error}).") from error
    return bytes(proto.SerializeToString())


class _Recorder(fx.Interpreter):
    """Runs a graph and keeps the result of every node."""

    def record(self, x: Tensor) -> dict[fx.Node, Any]:
        self.results: dict[fx.Node, Any] = {}
        try:
            with torch.no_grad():
                self.run(x, enable_io_processing=False)
        except LingraftError:
            raise
        except Exception as error:
            reason = str(error).strip().splitlines()[0]
            raise LingraftError(f"the model does not take images of shape {tuple(x.shape[1:])}: {reason}.") from error
        return self.results

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        self.results[n] = result
        return result


def _write_node(
    writer: OnnxWriter, traced: fx.GraphModule, node: fx.Node, known: dict[fx.Node, Any], result: Any, form: Form
) -> Any:
    """What a node gives: a Value that depends on the input, or a tensor or number that does not."""
    if node.op == "placeholder":
        return named(result.shape, "input")
    args: Any
    kwargs: Any
    args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)
    depends = any(_depends(known[argument]) for argument in node.all_input_nodes)
    if not depends or _is_shape(result):
        return result
    writer.scope = str(node.target) if node.op == "call_module" else node.name
    try:
        several = isinstance(result, tuple | list) and all(isinstance(part, Tensor) for part in result)
        if not isinstance(result, Tensor) and not several:
            raise LingraftError("its result is not a tensor")
        activation = activation_of(traced, node)
        module = traced.get_submodule(str(node.target)) if node.op == "call_module" else None
        if activation is not None and not isinstance(module, GraftedActivation):
            x = args[0] if args else kwargs["input"]
            return named(result.shape, write_activation(writer, activation, x.name, result.dim()))
        if isinstance(module, GraftedActivation):
            (x,) = args
            alone = len(node.all_input_nodes[0].users) == 1
            return write_grafted(writer, module, result.shape, x, alone, form)
        call = call_of(node, traced.get_submodule, title(node, traced))
        if call is None:
            what = title(node, traced)
            raise LingraftError(f"{what} cannot be written as ONNX. What can: `lingraft doctor --operations`.")
        shape = [part.shape for part in result] if several else result.shape
        values = call.arguments(known.__getitem__)
        if call.operation.rank is not None:
            call.operation.require_rank(title(node, traced), values[0].shape)
        return WRITERS[call.operation.name](writer, shape, *values)
    except LingraftError as error:
        raise LingraftError(f"{writer.scope!r}: {error}") from error


def _depends(known: Any) -> bool:
    """Whether something is a value that depends on the input, or several such values."""
    return isinstance(known, Value) or (isinstance(known, list) and all(isinstance(part, Value) for part in known))


def _is_shape(result: Any) -> bool:
    """Whether something is a size or part of one, which is fixed in the file and needs no node."""
    return isinstance(result, int) or (isinstance(result, tuple) and all(isinstance(n, int) for n in result))
