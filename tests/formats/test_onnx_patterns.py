"""Activations that exporters write with several operations are found again, and nothing else is taken for one."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from everyday import EVERYDAY
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import lingraft
from lingraft import LingraftError
from lingraft.model.sites import sites_of
from lingraft.model.tracing import trace

MAKE = helper.make_node


def written(path: Path, nodes: list[Any], constants: dict[str, float], opset: int = 17) -> Path:
    """A file that computes y of x, (1, 3)."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
    return path


GELU = {
    "half at the end": [
        MAKE("Div", ["x", "root"], ["a"]), MAKE("Erf", ["a"], ["b"]), MAKE("Add", ["b", "one"], ["c"]),
        MAKE("Mul", ["x", "c"], ["d"]), MAKE("Mul", ["d", "half"], ["y"]),
    ],
    "half at x": [
        MAKE("Mul", ["x", "half"], ["h"]), MAKE("Div", ["x", "root"], ["a"]), MAKE("Erf", ["a"], ["b"]),
        MAKE("Add", ["one", "b"], ["c"]), MAKE("Mul", ["c", "h"], ["y"]),
    ],
    "half at the sum": [
        MAKE("Mul", ["x", "inverse"], ["a"]), MAKE("Erf", ["a"], ["b"]), MAKE("Add", ["b", "one"], ["c"]),
        MAKE("Mul", ["c", "half"], ["d"]), MAKE("Mul", ["x", "d"], ["y"]),
    ],
}  # fmt: skip
NUMBERS = {"root": 2**0.5, "inverse": 0.5**0.5, "half": 0.5, "one": 1.0}


@pytest.mark.parametrize("form", GELU)
def test_gelu_written_with_erf(form: str, tmp_path: Path) -> None:
    back = lingraft.load_onnx(written(tmp_path / "net.onnx", GELU[form], NUMBERS))
    assert [type(module) for module in back.modules()][1:] == [nn.GELU]
    assert not [node for node in back.graph.nodes if node.op == "call_function"]
    x = 3 * torch.randn(50, 3)
    torch.testing.assert_close(back(x), nn.GELU()(x))


@pytest.mark.parametrize(("other", "exact"), [(0.5, torch.float32), (0.3, torch.float64)])
def test_factors_of_gelu_are_not_rounded(other: float, exact: torch.dtype, tmp_path: Path) -> None:
    """A product of two numbers may be more than single precision holds; then the network is read in double."""
    nodes = [*GELU["half at the sum"][:3], MAKE("Mul", ["c", "half"], ["d"]), MAKE("Mul", ["x", "other"], ["e"])]
    nodes.append(MAKE("Mul", ["e", "d"], ["y"]))
    back = lingraft.load_onnx(written(tmp_path / "net.onnx", nodes, {**NUMBERS, "half": 0.7, "other": other}))
    (factor,) = back.buffers()
    assert float(factor) == 2 * float(np.float32(0.7)) * float(np.float32(other))
    assert factor.dtype == exact
    x = 3 * torch.randn(50, 3, dtype=exact)
    torch.testing.assert_close(back(x), 2 * 0.7 * other * nn.GELU()(x), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("nodes", "kind"),
    [
        ([MAKE("Sigmoid", ["x"], ["s"]), MAKE("Mul", ["s", "x"], ["y"])], "silu"),
        ([MAKE("Softplus", ["x"], ["s"]), MAKE("Tanh", ["s"], ["t"]), MAKE("Mul", ["x", "t"], ["y"])], "mish"),
        ([MAKE("HardSigmoid", ["x"], ["s"], alpha=1 / 6, beta=0.5), MAKE("Mul", ["x", "s"], ["y"])], "hardswish"),
    ],
)
def test_gates(nodes: list[Any], kind: str, tmp_path: Path) -> None:
    back = lingraft.load_onnx(written(tmp_path / "net.onnx", nodes, {}))
    assert [site.kind for site in lingraft.sites(back, (3,))] == [kind]


def test_a_gate_that_is_read_elsewhere_stays(tmp_path: Path) -> None:
    nodes = [MAKE("Sigmoid", ["x"], ["s"]), MAKE("Mul", ["x", "s"], ["z"]), MAKE("Add", ["z", "s"], ["y"])]
    back = lingraft.load_onnx(written(tmp_path / "net.onnx", nodes, {}))
    assert sorted(site.kind for site in lingraft.sites(back, (3,))) == ["sigmoid", "silu"]


@pytest.mark.parametrize(
    ("nodes", "numbers", "message"),
    [
        ([MAKE("Erf", ["x"], ["y"])], {}, "Erf is supported as part of an activation"),
        ([MAKE("Erf", ["x"], ["b"]), MAKE("Add", ["b", "one"], ["c"]), MAKE("Mul", ["x", "c"], ["y"])],
         {"one": 1.0}, "Erf is supported as part"),
        ([MAKE("Div", ["x", "root"], ["a"]), MAKE("Erf", ["a"], ["b"]), MAKE("Add", ["b", "two"], ["c"]),
          MAKE("Mul", ["x", "c"], ["y"])], {"two": 2.0, "root": 2**0.5}, "Erf is supported as part"),
        ([MAKE("Greater", ["x", "one"], ["g"]), MAKE("Where", ["g", "x", "x"], ["y"])], {"one": 1.0}, "choice between"),
        ([MAKE("Softplus", ["x"], ["s"]), MAKE("Greater", ["x", "one"], ["g"]), MAKE("Where", ["g", "x", "s"], ["y"])],
         {"one": 1.0}, "choice between"),
        ([MAKE("Softplus", ["x"], ["s"]), MAKE("Add", ["x", "n"], ["z"]), MAKE("Greater", ["x", "n"], ["g"]),
          MAKE("Where", ["g", "z", "s"], ["y"])], {"n": 20.0}, "choice between"),
    ],
)  # fmt: skip
def test_nothing_else_is_taken_for_one(
    nodes: list[Any], numbers: dict[str, float], message: str, tmp_path: Path
) -> None:
    with pytest.raises(LingraftError, match=message):
        lingraft.load_onnx(written(tmp_path / "net.onnx", nodes, numbers))


@pytest.mark.parametrize(
    ("nodes", "numbers", "kinds"),
    [
        ([MAKE("Mul", ["x", "x"], ["y"])], {}, []),
        ([MAKE("Sigmoid", ["x"], ["s"]), MAKE("Add", ["x", "one"], ["z"]), MAKE("Mul", ["z", "s"], ["y"])],
         {"one": 1.0}, ["sigmoid"]),
        ([MAKE("HardSigmoid", ["x"], ["s"]), MAKE("Mul", ["x", "s"], ["y"])], {}, ["hardtanh"]),  # its slope is 0.2
    ],
)  # fmt: skip
def test_another_product_stays_one(
    nodes: list[Any], numbers: dict[str, float], kinds: list[str], tmp_path: Path
) -> None:
    model = lingraft.load_onnx(written(tmp_path / "net.onnx", nodes, numbers))
    assert [site.kind for site in sites_of(trace(model)).values()] == kinds
    region = lingraft.Region(torch.tensor([-1.0, 0.2, -2.0]), torch.tensor([0.5, 0.4, 1.0]))
    lower, upper = lingraft.bounds(model, region).outputs
    share = torch.rand(500, 3, generator=torch.Generator().manual_seed(0))
    values = model(region.lower + share * (region.upper - region.lower))
    assert bool(((values >= lower - 1e-6) & (values <= upper + 1e-6)).all())
    assert bool((upper - lower < 20).all())


@pytest.mark.slow
@pytest.mark.parametrize("newest", [False, True])
def test_what_torch_exports_is_read(newest: bool, tmp_path: Path) -> None:
    """All activations in one network, by both exporters; it was compared with onnxruntime when it was read."""
    kinds = {name: kind for name, (kind, _) in EVERYDAY.items()}
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for name in kinds:
        layers += [nn.Linear(4, 4), EVERYDAY[name][1](4)]
    model = nn.Sequential(*layers, nn.Linear(4, 2)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (torch.rand(1, 4),), tmp_path / "net.onnx", dynamo=newest, external_data=False, verbose=False
        )
    back = lingraft.load_onnx(tmp_path / "net.onnx")
    same = {"clamp": ("hardtanh", "clamp_max")}
    for site, kind in zip(lingraft.sites(back, (4,)), kinds.values(), strict=True):
        assert site.kind in (kind, *same.get(kind, ()))
    x = torch.randn(20, 4)
    torch.testing.assert_close(back(x), model(x), rtol=1e-4, atol=1e-5)
