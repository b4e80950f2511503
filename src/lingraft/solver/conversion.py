"""From a PyTorch model to nodes: torch.fx gives the calls, each supported call becomes a few nodes."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.utils.parametrize import is_parametrized

from lingraft.errors import LingraftError
from lingraft.model.activations import KNOWN, kind_of
from lingraft.model.activations.record import per_channel
from lingraft.model.activations.relu import RELU
from lingraft.model.in_place import is_number, title
from lingraft.model.sites import Site as ModelSite
from lingraft.model.sites import sites_of
from lingraft.model.tracing import trace
from lingraft.solver.nodes import Convolution, Dense, Gather, Input, Node, Scale, Shape, Site, Sum


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


def _inner(shape: Sequence[int]) -> Shape:
    """Shape used inside for a value of outer shape (C, H, W) or (F,)."""
    return (shape[1], shape[2], shape[0]) if len(shape) == 3 else tuple(shape)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


class _Conversion:
    """State of one conversion: the nodes so far and which node each fx call became."""

    def __init__(self, model: nn.Module, input_shape: Shape):
        self.graph = trace(model)
        self.nodes: list[Node] = []
        self.position: dict[fx.Node, int] = {}
        #: zero-padded maps: the node that was padded, and by how much (top, left, bottom, right)
        self.padded: dict[int, tuple[int, tuple[int, int, int, int]]] = {}
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
            if several[call].shape != (3, *self._shape(call)):
                raise self._mixed(call)

    def _mixed(self, call: fx.Node) -> LingraftError:
        return LingraftError(f"{self._title(call)} changes the batch dimension. Keep it first and untouched.")

    # --- helpers that append nodes -------------------------------------------------------------

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _shape(self, call: fx.Node) -> Shape:
        """Outer shape of a call's value, without the batch."""
        return tuple(self.values[call].shape[1:])

    def _inner_constant(self, constant: Tensor, shape: Shape) -> Tensor:
        """A constant broadcast to a value of outer shape `shape`, in the inner order, float64."""
        full = constant.detach().double().expand(1, *shape)[0]
        return (full.permute(1, 2, 0) if full.dim() == 3 else full).contiguous()

    def _number(self, value: float) -> float:
        """A number written in the model, rounded to the precision in which the model uses it."""
        dtype = next((p.dtype for p in self.graph.parameters()), torch.float32)
        return float(torch.tensor(value, dtype=dtype))

    def _scale(self, name: str, source: int, weight: Tensor, bias: Tensor) -> int:
        """weight·x + bias of the node `source`."""
        return self._add(Scale(name, self.nodes[source].shape, [source], weight, bias))

    def _gather(self, call: fx.Node, source: fx.Node, moved: Tensor) -> int:
        """`moved` (1, *outer shape): for every value its 1-based outer flat position in the source, 0 for zero."""
        shape = tuple(moved.shape[1:])
        index = moved.round().long()[0] - 1
        index = (index.permute(1, 2, 0) if index.dim() == 3 else index).flatten()
        outer = self._shape(source)
        if len(outer) == 3:
            channels, height, width = outer
            c, rest = index.clamp(min=0) // (height * width), index.clamp(min=0) % (height * width)
            index = torch.where(index < 0, index, rest * channels + c)
        return self._add(Gather(call.name, _inner(shape), [self.position[source]], _inner(outer), index))

    def _numbered(self, source: fx.Node) -> Tensor:
        """1-based flat positions in the shape of a call's value: what a moving operation does to them is the move."""
        value = self.values[source]
        return torch.arange(1, value[0].numel() + 1, dtype=torch.float64, device=value.device).view(1, *value.shape[1:])

    # --- one call ---------------------------------------------------------------------------------

    def _depends(self, argument: Any) -> bool:
        return isinstance(argument, fx.Node) and argument in self.position

    def _convert(self, call: fx.Node, input_shape: Shape) -> None:
        if call.op == "placeholder":
            if self.nodes:
                raise LingraftError("the model takes more than one input. Wrap it so that it takes one tensor.")
            self.position[call] = self._add(Input("input", _inner(input_shape), []))
            return
        if call.op == "output":
            self._finish(call)
            return
        sources = [node for node in call.all_input_nodes if node in self.position]
        value = self.values[call]
        if not sources or is_number(call):
            return  # a constant or a shape: its recorded value is used where it is needed
        if isinstance(value, bool | int | float | complex | str):
            raise LingraftError(
                f"{self._title(call)} makes a {type(value).__name__} of what it computes from the image, which may be"
                " another for each image. Compute with tensors throughout."
            )
        if not isinstance(value, Tensor):
            raise LingraftError(f"{self._title(call)} gives several tensors at once, which is not supported.")
        if not value.dim() or value.shape[0] != 1:
            raise self._mixed(call)
        if call in self.sites:
            self.position[call] = _activation(self, self.sites[call], sources[0])
            return
        key, arguments, options = self._operation(call)
        handler = _HANDLERS.get(key)
        if handler is None:
            raise LingraftError(
                f"{self._title(call)} is not supported by the verifier. Supported: convolution, linear, batch norm,"
                f" pooling, reshaping, add, sub, concat, pad, scaling by constants, {', '.join(KNOWN)}."
            )
        try:
            self.position[call] = handler(self, call, *arguments, **options)
        except LingraftError:
            raise
        except Exception as error:  # whatever torch makes of arguments that no handler was written for
            raise LingraftError(
                f"{self._title(call)} is called with arguments that the verifier does not know."
                " Give plain ones, in their order."
            ) from error

    def _title(self, call: fx.Node) -> str:
        return title(call, self.graph)

    def _operation(self, call: fx.Node) -> tuple[Any, tuple, dict]:
        """What identifies the operation, and its arguments with the module's settings filled in."""
        if call.op == "call_module":
            module = self.graph.get_submodule(str(call.target))
            if is_parametrized(module):
                raise LingraftError(
                    f"{self._title(call)} computes its weights whenever it is called. Fix them before verifying:"
                    ' torch.nn.utils.parametrize.remove_parametrizations(layer, "weight").'
                )
            return type(module), (module, *call.args), dict(call.kwargs)
        return call.target, call.args, dict(call.kwargs)

    def _finish(self, call: fx.Node) -> None:
        result = call.args[0]
        if not self._depends(result) or len(self._shape(result)) != 1:  # type: ignore[arg-type]
            raise LingraftError("the model must return one tensor of logits (N, classes) that depends on the image.")
        last = self.position[result]  # type: ignore[index]
        if last != len(self.nodes) - 1:
            size = self.nodes[last].shape
            self._scale("output", last, torch.ones(size).double(), torch.zeros(size).double())


# --- handlers: (conversion, call, arguments…) → position of the resulting node --------------------

_HANDLERS: dict[Any, Callable[..., int]] = {}


def _handles(*keys: Any) -> Callable[[Callable[..., int]], Callable[..., int]]:
    def register(handler: Callable[..., int]) -> Callable[..., int]:
        for key in keys:
            _HANDLERS[key] = handler
        return handler

    return register


@_handles(nn.Conv2d)
def _conv(at: _Conversion, call: fx.Node, module: nn.Conv2d, x: fx.Node) -> int:
    if module.padding_mode != "zeros":
        raise LingraftError(f"{at._title(call)} pads with {module.padding_mode!r}. Only zero padding is supported.")
    if isinstance(module.padding, str):
        if module.padding == "same":
            total = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
            padding = (total[0] // 2, total[1] // 2, total[0] - total[0] // 2, total[1] - total[1] // 2)
        else:
            padding = (0, 0, 0, 0)
    else:
        padding = (module.padding[0], module.padding[1]) * 2
    bias = torch.zeros(module.out_channels) if module.bias is None else module.bias.detach()
    return _convolution(
        at, call, x, module.weight.detach(), bias, _pair(module.stride), padding, _pair(module.dilation), module.groups
    )


def _convolution(
    at: _Conversion,
    call: fx.Node,
    x: fx.Node,
    weight: Tensor,
    bias: Tensor,
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    groups: int,
) -> int:
    at_source = at.position[x]
    if at_source in at.padded:  # zero padding before a convolution is the convolution's own padding
        at_source, extra = at.padded[at_source]
        padding = tuple(a + b for a, b in zip(padding, extra, strict=True))  # type: ignore[assignment]
    source = at.nodes[at_source].shape
    out, per_group, kh, kw = weight.shape
    full = weight.new_zeros(out, source[2], kh, kw)  # groups become zeros: one kind of convolution is enough
    for g in range(groups):
        o, i = slice(g * out // groups, (g + 1) * out // groups), slice(g * per_group, (g + 1) * per_group)
        full[o, i] = weight[o]
    matrix = full.double().permute(0, 2, 3, 1).reshape(out, -1).contiguous()
    shape = _inner(at._shape(call))
    node = Convolution(
        call.name, shape, [at_source], source, matrix, bias.double(), (kh, kw), stride, padding, dilation
    )
    return at._add(node)


@_handles(nn.Linear)
def _linear(at: _Conversion, call: fx.Node, module: nn.Linear, x: fx.Node) -> int:
    if len(at._shape(x)) != 1:
        raise LingraftError(f"{at._title(call)} takes {at._shape(x)}. Flatten to (N, features) before a linear layer.")
    bias = torch.zeros(module.out_features) if module.bias is None else module.bias.detach()
    weight = module.weight.detach().double()
    return at._add(Dense(call.name, at._shape(call), [at.position[x]], weight, bias.double()))


@_handles(nn.BatchNorm2d, nn.BatchNorm1d)
def _batch_norm(at: _Conversion, call: fx.Node, module: nn.BatchNorm2d, x: fx.Node) -> int:
    if module.running_mean is None or module.running_var is None:
        raise LingraftError(f"{at._title(call)} has no running statistics. Use track_running_stats=True.")
    weight = (module.running_var.double() + module.eps).rsqrt()
    if module.weight is not None:
        weight = weight * module.weight.detach().double()
    bias = -module.running_mean.double() * weight
    if module.bias is not None:
        bias = bias + module.bias.detach().double()
    shape = at._shape(x)
    view = (1, -1) + (1,) * (len(shape) - 1)
    w, b = (at._inner_constant(t.view(view), shape) for t in (weight, bias))
    return at._scale(call.name, at.position[x], w, b)


@_handles(nn.Identity, nn.Dropout, nn.Dropout2d, F.dropout, torch.clone, "clone", "contiguous", "detach")
def _identity(at: _Conversion, call: fx.Node, *arguments: Any, **options: Any) -> int:
    if call.target is F.dropout and options.get("training", False):
        raise LingraftError(f"{at._title(call)} drops values also in eval mode. Pass training=self.training.")
    return at.position[next(a for a in arguments if at._depends(a))]


@_handles(
    nn.Flatten, nn.Unflatten, torch.flatten, torch.reshape, torch.permute, torch.transpose, torch.squeeze,
    torch.unsqueeze, operator.getitem, "flatten", "reshape", "view", "permute", "transpose", "squeeze", "unsqueeze",
)  # fmt: skip
def _move(at: _Conversion, call: fx.Node, *arguments: Any, **options: Any) -> int:
    """Anything that only moves values: do it to numbered positions and read off where each went."""
    (source,) = (node for node in call.all_input_nodes if at._depends(node))
    if call.op == "call_module":
        return at._gather(call, source, arguments[0](at._numbered(source)))
    values: Any
    settings: Any
    values, settings = fx.map_arg((arguments, options), lambda n: at._numbered(n) if n is source else at.values[n])
    function = getattr(torch.Tensor, call.target) if isinstance(call.target, str) else call.target
    return at._gather(call, source, function(*values, **settings))


@_handles(nn.ZeroPad2d, nn.ConstantPad2d)
def _pad_module(at: _Conversion, call: fx.Node, module: nn.ConstantPad2d, x: fx.Node) -> int:
    return _pad(at, call, x, module.padding, value=module.value)


@_handles(F.pad)
def _pad(
    at: _Conversion, call: fx.Node, x: fx.Node, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> int:
    if mode != "constant" or value not in (None, 0):
        raise LingraftError(f"{at._title(call)} does not pad with zeros. Only zero padding is supported.")
    position = at._gather(call, x, F.pad(at._numbered(x), tuple(pad)))
    if len(at._shape(x)) == 3 and len(pad) == 4 and min(pad) >= 0:
        left, right, top, bottom = pad
        at.padded[position] = at.position[x], (top, left, bottom, right)
    return position


@_handles(torch.cat, torch.concat)
def _concat(at: _Conversion, call: fx.Node, tensors: Sequence[fx.Node], dim: int = 0, axis: int | None = None) -> int:
    dim = dim if axis is None else axis
    parts = []
    for i, part in enumerate(tensors):
        if not at._depends(part):
            raise LingraftError(
                f"{at._title(call)} joins a constant. Only values that depend on the image can be joined."
            )
        pieces = [at._numbered(t) if j == i else torch.zeros_like(at._numbered(t)) for j, t in enumerate(tensors)]
        parts.append(at._gather(call, part, torch.cat(pieces, dim)))
    return at._add(Sum(call.name, at.nodes[parts[0]].shape, parts, [1.0] * len(parts)))


def _combine(at: _Conversion, call: fx.Node, a: Any, b: Any, sign: float) -> int:
    """a + sign·b, where one of them may be a constant."""
    shape = at._shape(call)
    inner = _inner(shape)
    if at._depends(a) and at._depends(b):
        if at._shape(a) != at._shape(b):
            raise LingraftError(f"{at._title(call)} broadcasts {at._shape(a)} with {at._shape(b)}. Use equal shapes.")
        return at._add(Sum(call.name, inner, [at.position[a], at.position[b]], [1.0, sign]))
    variable, constant = (a, b) if at._depends(a) else (b, a)
    if at._shape(variable) != shape:
        raise LingraftError(f"{at._title(call)} broadcasts {at._shape(variable)} to {shape}. Use equal shapes.")
    weight = torch.full(inner, 1.0 if variable is a else sign, dtype=torch.float64)
    shift = _constant(at, constant, shape) * (sign if variable is a else 1.0)
    return at._scale(call.name, at.position[variable], weight, shift)


def _constant(at: _Conversion, value: Any, shape: Shape) -> Tensor:
    value = at.values[value] if isinstance(value, fx.Node) else value
    value = value if isinstance(value, Tensor) else torch.tensor(at._number(value), dtype=torch.float64)
    return at._inner_constant(value, shape)


@_handles(operator.add, torch.add, "add", "add_")
def _add(at: _Conversion, call: fx.Node, a: Any, b: Any, alpha: float = 1.0) -> int:
    return _combine(at, call, a, b, at._number(alpha))


@_handles(operator.sub, torch.sub, "sub", "sub_")
def _sub(at: _Conversion, call: fx.Node, a: Any, b: Any, alpha: float = 1.0) -> int:
    return _combine(at, call, a, b, -at._number(alpha))


@_handles(
    operator.mul, operator.truediv, operator.neg, torch.mul, torch.div, torch.neg, "mul", "div", "neg", "mul_", "div_",
    "neg_",
)  # fmt: skip
def _multiply(at: _Conversion, call: fx.Node, a: Any, b: Any = -1.0) -> int:
    shape = at._shape(call)
    divides = call.target in (operator.truediv, torch.div, "div", "div_")
    if (at._depends(a) and at._depends(b)) or (divides and not at._depends(a)):
        raise LingraftError(f"{at._title(call)} is not linear. Only products with constants are supported.")
    variable, constant = (a, b) if at._depends(a) else (b, a)
    if at._shape(variable) != shape:
        raise LingraftError(f"{at._title(call)} broadcasts {at._shape(variable)} to {shape}. Use equal shapes.")
    weight = _constant(at, constant, shape)
    weight = weight.reciprocal() if divides else weight
    return at._scale(call.name, at.position[variable], weight, torch.zeros_like(weight))


@_handles(nn.AvgPool2d, nn.AdaptiveAvgPool2d, F.avg_pool2d, F.adaptive_avg_pool2d)
def _average(at: _Conversion, call: fx.Node, *arguments: Any, **options: Any) -> int:
    x, pool = _pooling(at, call, arguments, options, F.avg_pool2d)
    channels, height, width = at._shape(x)
    if isinstance(pool, nn.AdaptiveAvgPool2d):
        out = _pair(pool.output_size)
        if height % out[0] or width % out[1]:
            raise LingraftError(f"{at._title(call)} pools {height}×{width} unevenly. Use sides that divide evenly.")
        pool = nn.AvgPool2d((height // out[0], width // out[1]))
    kernel, padding = _pair(pool.kernel_size), _pair(pool.padding)
    if pool.ceil_mode or pool.divisor_override or (any(padding) and not pool.count_include_pad):
        raise LingraftError(f"{at._title(call)}: ceil_mode, divisor_override, count_include_pad=False are unsupported.")
    weight = torch.full((channels, 1, *kernel), 1 / (kernel[0] * kernel[1]), dtype=torch.float64)
    return _convolution(
        at, call, x, weight, torch.zeros(channels), _pair(pool.stride), (*padding, *padding), (1, 1), channels
    )


def _pooling(at: _Conversion, call: fx.Node, arguments: tuple, options: dict, plain: Any) -> tuple[fx.Node, Any]:
    """The pooled value and the pooling as a module, whichever way it was called."""
    if call.op == "call_module":
        return arguments[1], arguments[0]
    x, *rest = arguments
    if call.target is F.adaptive_avg_pool2d:
        return x, nn.AdaptiveAvgPool2d(*rest, **options)
    if plain is F.avg_pool2d:
        return x, nn.AvgPool2d(*rest, **options)
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")  # another order than the module's
    return x, nn.MaxPool2d(**dict(zip(names, rest, strict=False)), **options)


@_handles(nn.MaxPool2d, F.max_pool2d, torch.max_pool2d)
def _maximum(at: _Conversion, call: fx.Node, *arguments: Any, **options: Any) -> int:
    """max(a, b) = b + relu(a − b), in a tournament over the window: exact, and split like any other neuron."""
    x, pool = _pooling(at, call, arguments, options, F.max_pool2d)
    if pool.ceil_mode:
        raise LingraftError(f"{at._title(call)} uses ceil_mode, which is not supported. Pad the image instead.")
    numbered = at._numbered(x)
    channels = numbered.shape[1]
    windows = F.unfold(numbered, _pair(pool.kernel_size), _pair(pool.dilation), _pair(pool.padding), _pair(pool.stride))
    windows = windows.view(channels, -1, *at._shape(call)[1:])
    best = windows.amax(1, keepdim=True)
    windows = torch.where(windows == 0, best, windows)  # padding never wins: let it repeat a pixel of the window
    players = [at._gather(call, x, windows[:, i][None]) for i in range(windows.shape[1])]
    round_ = 0
    while len(players) > 1:
        winners = []
        for i in range(0, len(players) - 1, 2):
            winners.append(_larger(at, f"{call.name}.{round_}.{i // 2}", players[i], players[i + 1]))
        players = winners + players[len(winners) * 2 :]
        round_ += 1
    return players[0]


def _larger(at: _Conversion, name: str, a: int, b: int) -> int:
    shape = at.nodes[a].shape
    difference = at._add(Sum(f"{name}.difference", shape, [a, b], [1.0, -1.0]))
    none = torch.zeros(shape).double()
    positive = at._add(Site(name, shape, [difference], RELU.name, none.bool(), none, none, public=False))
    return at._add(Sum(f"{name}.larger", shape, [b, positive], [1.0, 1.0]))


def _activation(at: _Conversion, site: ModelSite, x: fx.Node) -> int:
    """A site; what is made of lines is written with ReLUs as `Pieces` says, exactly; where grafted, it is a line."""
    shape, outer = _inner(at._shape(x)), at._shape(x)
    slope = intercept = torch.zeros(shape).double()
    mask = slope.bool()
    if site.grafted is not None:
        mask = at._inner_constant(site.grafted.mask.double(), outer) > 0
        slope, intercept = (at._inner_constant(t, outer) for t in site.grafted.line())
    source = at.position[x]
    pieces = site.activation.pieces
    if pieces is None or (not isinstance(pieces.slope, Tensor) and pieces == RELU.pieces):
        kind = kind_of(site.activation) if pieces is None else RELU.name
        return at._add(Site(site.name, shape, [source], kind, mask, slope, intercept))

    def number(value: float | Tensor) -> Tensor:
        """In the model's precision, for every neuron."""
        known = value if isinstance(value, Tensor) else torch.tensor(at._number(value), dtype=torch.float64)
        return at._inner_constant(per_channel(known, torch.empty(1, *outer, dtype=torch.float64)), outer)

    def bent(of: int, public: bool, *line: float) -> int:
        return at._add(Site(site.name, shape, [of], RELU.name, mask, none, none, public, *line))

    none = torch.zeros_like(slope)
    line, shift = torch.where(mask, slope, number(pieces.slope)), torch.where(mask, intercept, number(pieces.shift))
    result = at._scale(f"{site.name}.line", source, line, shift)
    if pieces.bend is not None:
        gain, offset = at._number(pieces.bend.gain), at._number(pieces.bend.offset)
        moved = source
        if (gain, offset) != (1.0, 0.0):
            moved = at._scale(f"{site.name}.moved", source, none + gain, none + offset)
        step = number(pieces.bend.after) - number(pieces.bend.before)
        if bool(line.any()):
            bend = at._scale(f"{site.name}.bend", bent(moved, True, gain, offset), step, none)
            result = at._add(Sum(f"{site.name}.bent", shape, [result, bend], [1.0, 1.0]))
        else:
            result = at._scale(f"{site.name}.bent", bent(moved, True, gain, offset), step, shift)
    if pieces.ceiling is not None:
        ceiling = number(pieces.ceiling)
        below = at._scale(f"{site.name}.below", result, none - 1, ceiling)
        over = bent(below, pieces.bend is None, -1.0, at._number(pieces.ceiling))
        under = at._scale(f"{site.name}.under", over, none - 1, torch.where(mask, 0.0, ceiling))
        if not bool(mask.any()):
            return under
        grafted = at._scale(f"{site.name}.grafted", result, mask.double(), none)
        result = at._add(Sum(f"{site.name}.clipped", shape, [grafted, under], [1.0, 1.0]))
    return result
