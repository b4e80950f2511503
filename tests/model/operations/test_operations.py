"""Every operation of the one list is verified and bounded in training as the model computes it; export: test_onnx_shapes.py."""

import operation_cases as cases
import pytest
import torch
from torch import Tensor

from lingraft.formats.onnx_shapes import WRITERS
from lingraft.model.operations import KNOWN
from lingraft.solver.crown import neuron_rows, pass_back
from lingraft.solver.lowering import HANDLERS
from lingraft.solver.methods import METHODS
from lingraft.solver.network import Network
from lingraft.solver.rows import Rows
from lingraft.training.differentiable import graph_of
from lingraft.training.differentiable.intervals import RULES, interval_bounds

#: Cases that are not linear, without any activation.
BENT = (
    "MaxPool", "max_pool", "product", "square", "torch.square", "quotient of", "powers", "waves", "exponential", "steps",
    "softmax",
)  # fmt: skip


def test_one_list_for_all_that_handles_operations() -> None:
    assert HANDLERS.keys() == KNOWN.keys()
    assert RULES.keys() == KNOWN.keys()
    assert WRITERS.keys() == KNOWN.keys()
    shown = {operation for name in cases.NAMES for operation in cases.around(name)[2]}
    assert shown == KNOWN.keys(), "operations without a case in tests/oracles/operation_cases.py"


def test_no_call_and_no_layer_means_two_operations() -> None:
    calls = [call for record in KNOWN.values() for call in set(record.calls)]
    layers = [layer for record in KNOWN.values() for layer in record.layers]
    assert len(calls) == len(set(calls))
    assert len(layers) == len(set(layers))


@pytest.mark.parametrize("name", cases.NAMES)
def test_verified_as_the_model_computes(name: str) -> None:
    model, shape, _ = cases.around(name)
    network = Network.from_module(model, shape)
    slack = 1e-12  # the model itself rounds
    box = torch.randn(shape).double(), torch.rand(shape).double() / 2
    points = box[0] + box[1] * (2 * torch.rand(40, *shape).double() - 1)
    with torch.no_grad():
        torch.testing.assert_close(network.forward(points), model(points), rtol=1e-10, atol=1e-10)
        values = model.before(points)
    region = box[0] - box[1], box[0] + box[1]
    (last,) = (i for i, node in enumerate(network.nodes) if node.name == "relu")
    for method in ("intervals", "crown"):
        bounds = METHODS[method](network, region[0][None], region[1][None])[last]
        lower, upper = (network.outside(end) for end in bounds)
        assert bool(((values >= lower - slack) & (values <= upper + slack)).all()), method
    found = interval_bounds(graph_of(model), region[0][None], region[1][None], rounded=True).sites["relu"]
    assert bool(((values >= found.lower - slack) & (values <= found.upper + slack)).all())
    narrow = interval_bounds(graph_of(model), points, points, rounded=True).sites["relu"]
    torch.testing.assert_close((narrow.lower + narrow.upper) / 2, values, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in cases.NAMES if not name.startswith(BENT)])
def test_rows_passed_back_are_the_jacobian(name: str) -> None:
    model, shape, _ = cases.around(name, bent=False)
    network = Network.from_module(model, shape)
    rows, constant = pass_back(network, *neuron_rows(network, len(network.nodes) - 1, torch.arange(3)), _no_site)
    jacobian = torch.autograd.functional.jacobian(lambda x: model(x[None])[0], torch.randn(shape).double())
    torch.testing.assert_close(network.outside(rows.whole(network.nodes[0].shape).coefficients), jacobian)
    torch.testing.assert_close(constant, model(torch.zeros(1, *shape).double())[0])


def _no_site(i: int, rows: Rows) -> tuple[Rows, Tensor]:
    raise AssertionError("there is no activation")
