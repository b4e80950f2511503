"""Surgery: a copy of a model in which chosen neurons are linear."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, fx, nn

from lingraft.errors import LingraftError
from lingraft.model.grafted_activation import GraftedActivation
from lingraft.model.plain import copied
from lingraft.model.sites import Site, grafted_activations, sites_of, sites_with_shapes
from lingraft.model.tracing import trace
from lingraft.names import lookup


def graft(
    model: nn.Module,
    mask: Mapping[str, Tensor],
    slope: float | None = None,
    intercept: float | None = None,
    *,
    input_shape: Sequence[int] | None = None,
) -> fx.GraphModule:
    """A copy of `model` in which every neuron that is True in `mask` is slope·x + intercept, both to be learned.

    `mask` maps names of sites (see `lingraft.sites`) to boolean tensors of their neuron shape; each of these sites
    becomes a GraftedActivation, sites that are not named stay as they are. `model` itself is not changed. In a model
    that is grafted already, new neurons are added and the old ones keep their lines. Without `slope` and `intercept`
    neurons start from the line of their activation (0.4·x for ReLU, the tangent at 0 for smooth ones). With
    `input_shape`, the shape of one image, masks are checked against the model at once instead of at its first forward
    pass.
    """
    require_line(slope, intercept)
    return _operate(model, mask, input_shape, lambda site, chosen: site.graft(chosen, slope, intercept))


def pruned(model: nn.Module, mask: Mapping[str, Tensor], *, input_shape: Sequence[int] | None = None) -> fx.GraphModule:
    """A copy of `model` in which every neuron that is True in `mask` is 0 and stays so in training.

    This is grafting of the fixed line 0·x + 0 (the paper, Section "Grafting 0 versus a×x+b"); arguments as in `graft`.
    """
    return _operate(model, mask, input_shape, lambda site, chosen: site.prune(chosen))


def masks(model: nn.Module) -> dict[str, Tensor]:
    """The mask of every grafted site of `model`: copies, by site name."""
    return {name: site.mask.clone() for name, site in grafted_activations(model).items()}


def prepared(model: nn.Module, shapes: Mapping[str, Sequence[int]]) -> fx.GraphModule:
    """A copy of `model` in which each of these sites is a GraftedActivation, without grafting any more neurons.

    `shapes` maps site names to neuron shapes.
    """
    return graft(model, {name: torch.zeros(*shape, dtype=torch.bool) for name, shape in shapes.items()})


def shapes(found: Iterable[Site]) -> dict[str, tuple[int, ...]]:
    """Site name → neuron shape."""
    return {site.name: site.shape for site in found}


def require_line(slope: float | None, intercept: float | None) -> None:
    """Refuse a line to start from that is not of finite numbers; None is the usual one."""
    if not all(value is None or math.isfinite(value) for value in (slope, intercept)):
        raise LingraftError(f"slope {slope} and intercept {intercept} must be finite numbers.")


def require_finite(model: nn.Module) -> None:
    """Refuse a model with NaN or infinite weights, naming them."""
    broken = [name for name, p in model.named_parameters() if not torch.isfinite(p).all()]
    if broken:
        raise LingraftError(f"the model has NaN or infinite weights in {', '.join(broken)}. Train it again.")


def _operate(
    model: nn.Module,
    mask: Mapping[str, Tensor],
    input_shape: Sequence[int] | None,
    change: Callable[[GraftedActivation, Tensor], None],
) -> fx.GraphModule:
    require_finite(model)
    if not isinstance(mask, Mapping):
        raise LingraftError(
            f"the mask must map names of sites to boolean tensors, not be {type(mask).__name__}. lingraft.select makes"
            " one from scores."
        )
    _require_one_graph(model)
    traced = trace(copied(model))
    if input_shape is not None:
        check_shapes(mask, sites_with_shapes(traced, input_shape))
    found = sites_of(traced)
    _separate(traced, found)
    nodes = {site.name: node for node, site in found.items()}
    for name, chosen in mask.items():
        node = lookup("site", name, nodes)
        if not isinstance(chosen, Tensor) or chosen.dtype != torch.bool:
            raise LingraftError(f"the mask of site {name!r} must be a boolean tensor: True for a grafted neuron.")
        if not chosen.numel():
            raise LingraftError(f"the mask of site {name!r} has shape {tuple(chosen.shape)}: a site without neurons.")
        grafted = _grafted(traced, node, found[node], tuple(chosen.shape))
        try:
            change(grafted, chosen)
        except LingraftError as error:
            raise LingraftError(f"site {name!r}: {error}") from error
    traced.graph.lint()
    traced.recompile()
    traced.delete_all_unused_submodules()
    return traced


def _require_one_graph(model: nn.Module) -> None:
    """Refuse a model whose forward looks at self.training: its copy would do the same in training and in eval mode."""
    another = copied(model)
    if len({str(trace(another.train(mode)).graph) for mode in (True, False)}) > 1:
        raise LingraftError(
            f"the forward of {type(model).__name__} is another in training mode than in eval mode (self.training), of"
            " which a grafted copy would keep one. Use layers that know their mode, such as nn.Dropout."
        )


def check_shapes(mask: Mapping[str, Tensor], found: Sequence[Site]) -> None:
    """Refuse a mask that names other sites than these, or other shapes."""
    known = shapes(found)
    for name, chosen in mask.items():
        shape = lookup("site", name, known)
        if tuple(chosen.shape) != shape:
            raise LingraftError(
                f"the mask of site {name!r} has shape {tuple(chosen.shape)}, its neurons have shape {shape}."
            )


def _separate(traced: fx.GraphModule, found: Mapping[fx.Node, Site]) -> None:
    """Give the second and later calls of one module a module of their own, at the path that is their name."""
    for node, site in found.items():
        if node.op == "call_module" and node.target != site.name:
            traced.add_submodule(site.name, copied(traced.get_submodule(str(node.target))))
            node.target = site.name


def _grafted(traced: fx.GraphModule, node: fx.Node, site: Site, neurons: tuple[int, ...]) -> GraftedActivation:
    """The GraftedActivation of this call, put there if it is not one yet."""
    if node.op == "call_module":
        present = traced.get_submodule(str(node.target))
        if isinstance(present, GraftedActivation):
            return present
    reference = next(traced.parameters(), None)
    grafted = GraftedActivation(site.activation, neurons)
    if reference is not None:
        grafted.to(device=reference.device, dtype=reference.dtype)
    grafted.train(traced.training)
    traced.add_submodule(site.name, grafted)
    with traced.graph.inserting_before(node):
        argument = node.args[0] if node.args else node.kwargs["input"]
        replacement = traced.graph.call_module(site.name, (argument,))
    node.replace_all_uses_with(replacement)
    traced.graph.erase_node(node)
    return grafted
