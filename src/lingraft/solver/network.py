"""A verifiable network: the linear nodes and sites that a PyTorch model is converted to, and checked against."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor, nn

from lingraft.device import require_precision
from lingraft.errors import LingraftError
from lingraft.model.plain import copied, plain
from lingraft.model.unseen import refuse_unseen
from lingraft.solver.agreement import require_agreement
from lingraft.solver.conversion import convert
from lingraft.solver.nodes import Input, Node, Product, Shape, Site

#: Layers that compute something else in training mode; others may be in it, as containers made by torch.fx are.
IN_TWO_MODES = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)


@dataclass
class Network:
    """Nodes in an order in which inputs come first; the last one gives the logits. Constants are float64."""

    nodes: list[Node]
    input_shape: Shape
    #: what `crown.row_width` and `row_products` found, by node
    ways: dict[int, tuple[int, float]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def sites(self) -> list[int]:
        """Positions of the sites in `nodes`, first to last."""
        return [i for i, node in enumerate(self.nodes) if isinstance(node, Site)]

    @property
    def bends(self) -> dict[int, list[int]]:
        """Of every activation of the model itself, by the position of its first site, the positions of all of them."""
        found: dict[int, list[int]] = {}
        first: dict[str, int] = {}
        for i in self.sites:
            node = self.nodes[i]
            assert isinstance(node, Site)
            if node.public:
                found[i], first[node.name] = [i], i
            elif node.name in first:
                found[first[node.name]].append(i)
        return found

    @property
    def neurons(self) -> int:
        """Number of activation neurons of the model itself."""
        return sum(node.size for node in self.nodes if isinstance(node, Site) and node.public)

    def inside(self, images: Tensor) -> Tensor:
        """Images (N, *input_shape) in the order used inside: channels last for maps."""
        return images.permute(0, 2, 3, 1) if images.dim() == 4 else images

    def outside(self, values: Tensor) -> Tensor:
        """Inverse of `inside`, for any node's values."""
        return values.permute(0, 3, 1, 2) if values.dim() == 4 else values

    def forward(self, images: Tensor) -> Tensor:
        """Logits (N, classes) of images (N, *input_shape), computed node by node."""
        return self.values(images)[-1]

    def values(self, images: Tensor) -> list[Tensor]:
        """Values of every node, in the inner order.

        A product is computed as one: its squares are there to be bounded, and in float32 little is left of their
        difference where one factor is large.
        """
        values: list[Tensor] = []
        for node in self.nodes:
            inputs = [values[i] for i in node.inputs]
            if isinstance(node, Product):
                one, other = (values[i] for i in node.factors(self.nodes))
                values.append(one * other + inputs[2] + inputs[3])
            else:
                values.append(self.inside(images) if isinstance(node, Input) else node.forward(*inputs))
        return values

    def to(self, dtype: torch.dtype, device: torch.device | None = None) -> "Network":
        """The same network with constants in another precision, or on another device."""
        nodes = []
        for node in self.nodes:
            tensors = {
                part.name: value.to(device, dtype if value.is_floating_point() else None)
                for part in fields(node)
                if isinstance(value := getattr(node, part.name), Tensor)
            }
            nodes.append(replace(node, **tensors))  # type: ignore[arg-type]
        return Network(nodes, self.input_shape)

    @classmethod
    def from_module(cls, model: nn.Module, input_shape: Sequence[int]) -> "Network":
        """Convert a model in eval mode; anything unsupported is an error that names the node, before any work."""
        model = plain(model)
        refuse_unseen(model)
        require_precision(model)
        if model.training or any(module.training for module in model.modules() if isinstance(module, IN_TWO_MODES)):
            raise LingraftError("the model is in training mode. Call model.eval() before verifying it.")
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point() and not torch.isfinite(tensor).all():
                raise LingraftError(f"the model has NaN or infinite weights in {name!r}. Repair or retrain it.")
        shape = tuple(input_shape)
        device = next(model.parameters(), torch.zeros(())).device
        near = model if device.type == "cpu" else copied(model).to("cpu")
        network = cls(convert(near, shape), shape).to(torch.float64, device)
        require_agreement(model, network)
        return network


def device_of(network: Network) -> torch.device:
    """Device of the network's constants."""
    for node in network.nodes:
        for value in vars(node).values():
            if isinstance(value, Tensor):
                return value.device
    return torch.device("cpu")
