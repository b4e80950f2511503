"""From a PyTorch model to nodes: torch.fx gives the calls, each supported call becomes a few nodes."""

from typing import Any

import torch
from torch import Tensor, fx, nn

from lingraft.errors import LingraftError
from lingraft.model.activations import kind_of
from lingraft.model.activations.record import per_channel
from lingraft.model.activations.relu import RELU
from lingraft.model.in_place import is_number
from lingraft.model.operations import call_of
from lingraft.model.sites import Site as ModelSite
from lingraft.model.sites import sites_of
from lingraft.model.tracing import trace
from lingraft.solver.lowering import HANDLERS, Building
from lingraft.solver.lowering.building import inner
from lingraft.solver.nodes import Input, Node, Shape, Site, Sum


def convert(model: nn.Module, input_shape: Shape) -> list[Node]:
    """The nodes of `model` for one input of that shape; unsupported calls are errors that name them."""
    return _without_unused(_Conversion(model, input_shape).nodes)


def _without_unused(nodes: list[Node]) -> list[Node]:
    """Only the input and the nodes that the last one depends on, renumbered."""
    used = {0, len(nodes) - 1}
    for i in range(len(nodes) - 1, 0, -1):
        if i in used:
            used.update(nodes[i].inputs)
    number = {old: new for new, old in enumerate(sorted(used))}
    for i in used:
        nodes[i].inputs = [number[j] for j in nodes[i].inputs]
    return [nodes[i] for i in sorted(used)]


class _Conversion(Building):
    """One conversion, call by call."""

    def __init__(self, model: nn.Module, input_shape: Shape):
        super().__init__(trace(model))
        self.values = self._record(input_shape, 1)
        self.sites = sites_of(self.graph)
        for call in self.graph.graph.nodes:
            self._convert(call, input_shape)
        self._require_separate_images(input_shape)

    def _record(self, input_shape: Shape, images: int) -> dict[fx.Node, Any]:
        """The value of every call for a number of images, all zero."""
        parameter = next(self.graph.parameters(), torch.zeros(()))
        recorder = fx.Interpreter(self.graph, garbage_collect_values=False)
        with torch.no_grad():
            try:
                recorder.run(torch.zeros(images, *input_shape, dtype=parameter.dtype, device=parameter.device))
            except LingraftError:
                raise
            except Exception as error:
                reason = str(error).split("While executing")[0]  # what torch.fx adds says nothing to a user
                what = " ".join(reason.split())[:300].rstrip(".")
                raise LingraftError(f"the model does not take images of shape {input_shape}: {what}.") from error
        return recorder.env

    def _require_separate_images(self, input_shape: Shape) -> None:
        """What was converted for one image must be there for each of several: the same shapes, one after the other."""
        several = self._record(input_shape, 3)
        for call in self.position:
            if several[call].shape != (3, *self.shape(call)):
                raise self._mixed(call)

    def _mixed(self, call: fx.Node) -> LingraftError:
        return LingraftError(f"{self.title(call)} changes the batch dimension. Keep it first and untouched.")

    def _convert(self, call: fx.Node, input_shape: Shape) -> None:
        if call.op == "placeholder":
            self.position[call] = self.add(Input("input", inner(input_shape), []))
            return
        if call.op == "output":
            self._finish(call)
            return
        sources = [node for node in call.all_input_nodes if self.depends(node)]
        if not sources or is_number(call):
            return  # a constant or a shape: its recorded value is used where it is needed
        value = self.values[call]
        if isinstance(value, bool | int | float | complex | str):
            raise LingraftError(
                f"{self.title(call)} makes a {type(value).__name__} of what it computes from the image, which may be"
                " another for each image. Compute with tensors throughout."
            )
        if call in self.sites:
            self.position[call] = _activation(self, self.sites[call], sources[0])
            return
        result = self._lower(call)
        if isinstance(value, Tensor):
            self.position[call] = result
        else:
            self.parts[call] = result
        for part in [value] if isinstance(value, Tensor) else value:
            if not part.dim() or part.shape[0] != 1:
                raise self._mixed(call)

    def _lower(self, call: fx.Node) -> Any:
        """The position of the node, or of each of several, that a call of an operation becomes."""
        found = call_of(call, self.graph.get_submodule, self.title(call))
        if found is None:
            raise LingraftError(
                f"{self.title(call)} is not supported by the verifier. What is: `lingraft doctor --operations`."
            )
        if found.operation.rank is not None:
            found.operation.require_rank(self.title(call), self.values[call.all_input_nodes[0]].shape)
        args = found.arguments(lambda node: node if self.depends(node) else self.values[node])
        try:
            return HANDLERS[found.operation.name](self, call, *args)
        except LingraftError:
            raise
        except Exception as error:  # whatever torch makes of arguments that no handler was written for
            raise LingraftError(
                f"{self.title(call)} is called with arguments that the verifier does not know."
                " Give plain ones, in their order."
            ) from error

    def _finish(self, call: fx.Node) -> None:
        result = call.args[0]
        if not isinstance(result, fx.Node) or result not in self.position or len(self.shape(result)) != 1:
            raise LingraftError("the model must return one tensor of logits (N, classes) that depends on the image.")
        last = self.position[result]
        if last != len(self.nodes) - 1:
            size = self.nodes[last].shape
            self.scale("output", last, torch.ones(size).double(), torch.zeros(size).double())


def _activation(at: Building, site: ModelSite, x: fx.Node) -> int:
    """A site; what is made of lines is written with ReLUs as `Pieces` says, exactly; where grafted, it is a line."""
    shape, outer = inner(at.shape(x)), at.shape(x)
    slope = intercept = torch.zeros(shape).double()
    mask = slope.bool()
    if site.grafted is not None:
        mask = at.inner_constant(site.grafted.mask.double(), outer) > 0
        slope, intercept = (at.inner_constant(t, outer) for t in site.grafted.line())
    source = at.position[x]
    pieces = site.activation.pieces
    if pieces is None or (not isinstance(pieces.slope, Tensor) and pieces == RELU.pieces):
        kind = kind_of(site.activation) if pieces is None else RELU.name
        return at.add(Site(site.name, shape, [source], kind, mask, slope, intercept))

    def number(value: float | Tensor) -> Tensor:
        """In the model's precision, for every neuron."""
        known = value if isinstance(value, Tensor) else torch.tensor(at.number(value), dtype=torch.float64)
        return at.inner_constant(per_channel(known, torch.empty(1, *outer, dtype=torch.float64)), outer)

    def bent(of: int, public: bool, *line: float) -> int:
        return at.add(Site(site.name, shape, [of], RELU.name, mask, none, none, public, *line))

    none = torch.zeros_like(slope)
    line, shift = torch.where(mask, slope, number(pieces.slope)), torch.where(mask, intercept, number(pieces.shift))
    result = at.scale(f"{site.name}.line", source, line, shift)
    if pieces.bend is not None:
        gain, offset = at.number(pieces.bend.gain), at.number(pieces.bend.offset)
        moved = source
        if (gain, offset) != (1.0, 0.0):
            moved = at.scale(f"{site.name}.moved", source, none + gain, none + offset)
        step = number(pieces.bend.after) - number(pieces.bend.before)
        if bool(line.any()):
            bend = at.scale(f"{site.name}.bend", bent(moved, True, gain, offset), step, none)
            result = at.add(Sum(f"{site.name}.bent", shape, [result, bend], [1.0, 1.0]))
        else:
            result = at.scale(f"{site.name}.bent", bent(moved, True, gain, offset), step, shift)
    if pieces.ceiling is not None:
        ceiling = number(pieces.ceiling)
        below = at.scale(f"{site.name}.below", result, none - 1, ceiling)
        over = bent(below, pieces.bend is None, -1.0, at.number(pieces.ceiling))
        under = at.scale(f"{site.name}.under", over, none - 1, torch.where(mask, 0.0, ceiling))
        if not bool(mask.any()):
            return under
        grafted = at.scale(f"{site.name}.grafted", result, mask.double(), none)
        result = at.add(Sum(f"{site.name}.clipped", shape, [grafted, under], [1.0, 1.0]))
    return result
