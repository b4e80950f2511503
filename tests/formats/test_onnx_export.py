"""ONNX out, and out and in again."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import lingraft
from lingraft import LingraftError
from lingraft.formats.onnx_export import export_onnx
from lingraft.model import zoo
from lingraft.model.sites import grafted_activations, sites
from lingraft.model.surgery import graft, pruned


def operations(path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def half_grafted(model: nn.Module, shape: tuple[int, ...], ratio: float = 0.5) -> nn.Module:
    torch.manual_seed(1)
    return graft(model, {s.name: torch.rand(s.shape) < ratio for s in sites(model, shape)}, 0.4, 0.1)


@pytest.mark.parametrize("name", [name for name in zoo.MODELS if not name.startswith("conv-huge")])
def test_zoo(round_trip, name):
    torch.manual_seed(0)
    shape = zoo.MODELS[name].input_shape
    model = zoo.build(name, mean=[0.4] * shape[0], std=[0.3] * shape[0])
    back = round_trip(model, shape)
    assert [s.shape for s in sites(back, shape)] == [s.shape for s in sites(model, shape)]


@pytest.mark.parametrize("form", ["output", "input"])
@pytest.mark.parametrize("name", ["cnn-b", "resnet-4b", "sigmoid-cnn", "digits-cnn"])
def test_grafted_zoo(round_trip, name, form):
    torch.manual_seed(0)
    shape = zoo.MODELS[name].input_shape
    model = half_grafted(zoo.build(name), shape)
    back = round_trip(model, shape, form=form)
    masks = [site.mask for site in grafted_activations(model).values()]
    again = [site.mask for site in grafted_activations(back).values()]
    assert len(masks) == len(again)
    assert all(torch.equal(a, b) for a, b in zip(masks, again, strict=True))


def test_fully_grafted_sites_are_scale_and_shift(round_trip, tmp_path):
    model = half_grafted(zoo.build("digits-cnn"), (1, 8, 8), ratio=1.1)
    back = round_trip(model, (1, 8, 8))
    assert operations(tmp_path / "net.onnx") == ["Conv", "Mul", "Add", "Conv", "Mul", "Add", "Flatten", "Gemm", "Gemm"]
    assert not any(isinstance(m, nn.ReLU) for m in back.modules())


def test_scales_and_shifts_as_batch_norm(round_trip, tmp_path):
    """For Marabou: no arithmetic with constant tensors, per channel or per neuron; the same outputs."""
    model = half_grafted(zoo.build("digits-cnn", mean=[0.4], std=[0.3]), (1, 8, 8))
    for dynamic in (False, True):
        round_trip(model, (1, 8, 8), form="batchnorm", dynamic_batch=dynamic)
        graph = onnx.load(tmp_path / "net.onnx").graph
        constants = {tensor.name for tensor in graph.initializer}
        assert not {"Mul", "Div", "Sub"} & {node.op_type for node in graph.node}
        assert not any(set(node.input) & constants for node in graph.node if node.op_type == "Add")
        assert [node.op_type for node in graph.node[:3]] == ["BatchNormalization", "BatchNormalization", "Conv"]


def test_pruned_neurons_come_back_as_dead(round_trip):
    model = zoo.build("digits-cnn")
    first = sites(model, (1, 8, 8))[0]
    mask = torch.rand(first.shape) < 0.3
    back = round_trip(pruned(model, {first.name: mask}), (1, 8, 8))
    (site,) = grafted_activations(back).values()
    assert torch.equal(site.mask, mask)
    assert not any(values.any() for values in site.line())


def test_forms_differ_as_promised(round_trip, tmp_path):
    model = half_grafted(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2)), (1, 6, 6))
    round_trip(model, (1, 6, 6), form="output")
    assert operations(tmp_path / "net.onnx") == ["Conv", "Relu", "Mul", "Mul", "Add", "Add", "Flatten", "Gemm"]
    round_trip(model, (1, 6, 6), form="input")
    assert operations(tmp_path / "net.onnx") == ["Conv", "Mul", "Relu", "Mul", "Add", "Add", "Flatten", "Gemm"]


def test_fully_connected_site_becomes_two_layers(round_trip, tmp_path):
    model = half_grafted(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)), (4,))
    back = round_trip(model, (4,))
    assert sorted(operations(tmp_path / "net.onnx")) == ["Add", "Gemm", "Gemm", "Gemm", "Relu"]
    assert [type(m).__name__ for m in back.children()] == ["Linear", "GraftedActivation", "Linear"]


def test_layer_used_elsewhere_is_not_absorbed(round_trip, tmp_path):
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.relu = nn.Linear(4, 6), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            z = self.first(x)
            return self.relu(z) - 2 * z

    round_trip(half_grafted(Skip(), (4,)), (4,))
    assert operations(tmp_path / "net.onnx").count("Gemm") == 1


def test_zero_padding_goes_into_the_convolution(round_trip, tmp_path):
    round_trip(nn.Sequential(nn.ZeroPad2d((1, 2, 0, 3)), nn.Conv2d(1, 2, 3, stride=2, padding=1)), (1, 6, 6))
    (node,) = onnx.load(tmp_path / "net.onnx").graph.node
    assert list(onnx.helper.get_node_attr_value(node, "pads")) == [1, 2, 4, 3]


def test_padding_that_something_else_uses_is_written(round_trip, tmp_path):
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            padded = F.pad(x, (1, 1, 1, 1))
            return (self.conv(padded) + F.pad(padded, (0, 0), value=1.0) + F.pad(x, (2, 0, 0, 2), value=0.5)).flatten(1)

    round_trip(Padded(), (1, 4, 4))
    assert operations(tmp_path / "net.onnx").count("Pad") == 2


class Functional(nn.Module):
    """Everything that is a function or a method rather than a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 20))
        self.bias = nn.Parameter(torch.randn(3))
        self.register_buffer("mean", torch.randn(2, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = (x - self.mean) / 2.0 + 0 * 1
        a = F.relu(F.max_pool2d(x, 2))
        b = torch.tanh(F.avg_pool2d(x, 2, stride=2))
        c = F.leaky_relu(F.adaptive_avg_pool2d(x, 2), 0.1)
        a, b, c = a.view(a.size(0), -1), b.reshape(x.shape[0], -1), torch.flatten(c, 1)
        d = x.mean((2, 3)).sigmoid().unsqueeze(1).squeeze(1)
        e = x.permute(0, 2, 3, 1).transpose(1, 2).contiguous().reshape(-1, 2, 16)
        e = F.dropout(e.flatten(1), 0.5, self.training)
        joined = torch.cat([a, b, c, d, -d], 1)
        return F.linear(joined, torch.cat([self.weight, self.weight[:, :8]], 1), self.bias) * (
            1 - 0.5
        ) + 0.01 * F.linear(e, torch.ones(3, 32))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 2, 3, padding="same", bias=False), nn.BatchNorm2d(2)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)) + x)


def normalized(model: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """The model after a batch, so that its batch norms have statistics of their own."""
    model.train()(torch.randn(16, *shape))
    return model


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        pytest.param(nn.Sequential(Residual(), Residual(), nn.Flatten(), nn.Linear(32, 3)), (2, 4, 4), id="residual"),
        pytest.param(
            nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.LeakyReLU(0.3), nn.Dropout(), nn.Linear(5, 2)),
            (4,),
            id="batch-norm-1d",
        ),
        pytest.param(
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sigmoid(), nn.MaxPool2d(3, 2, 1), nn.Tanh(), nn.AvgPool2d(2, 1, 1)),
            (1, 9, 9),
            id="pools",
        ),
        pytest.param(nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.AdaptiveAvgPool2d(1)), (2, 5, 5), id="global-pool"),
        pytest.param(nn.Sequential(nn.ConstantPad2d(1, 0.5), nn.Conv2d(1, 1, 2)), (1, 3, 3), id="constant-pad"),
        pytest.param(nn.Sequential(nn.Conv1d(2, 3, 3, padding=1), nn.ReLU(), nn.Flatten()), (2, 6), id="conv-1d"),
        pytest.param(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), (5, 4), id="linear-on-rows"),
        pytest.param(nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 2, 2)), (4,), id="unflatten"),
        pytest.param(
            nn.Sequential(nn.BatchNorm2d(2, affine=False), nn.Identity(), nn.ReLU()), (2, 3, 3), id="no-affine"
        ),
    ],
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_layers(round_trip, model, shape, dynamic):
    torch.manual_seed(0)
    round_trip(normalized(model, shape), shape, dynamic_batch=dynamic)


def test_functions_and_methods(round_trip):
    torch.manual_seed(0)
    round_trip(Functional(), (2, 4, 4))


def test_export_changes_nothing_about_the_model(tmp_path):
    model = zoo.build("digits-cnn").double().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    export_onnx(model, tmp_path / "net.onnx", input_shape=(1, 8, 8))
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert next(model.parameters()).dtype == torch.float64


def test_neutral_normalization_is_not_written(tmp_path):
    export_onnx(zoo.build("digits-cnn"), tmp_path / "net.onnx", input_shape=(1, 8, 8))
    assert operations(tmp_path / "net.onnx")[0] == "Conv"


@pytest.mark.parametrize("dynamic", [False, True])
def test_batch_dimension(tmp_path, dynamic):
    path = tmp_path / "net.onnx"
    export_onnx(zoo.build("digits-cnn"), path, input_shape=(1, 8, 8), dynamic_batch=dynamic)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["batch" if dynamic else 1, 1, 8, 8]
    if dynamic:
        assert session.run(None, {"input": np.zeros((3, 1, 8, 8), np.float32)})[0].shape == (3, 10)


def test_difference_is_reported(tmp_path):
    difference = lingraft.export_onnx(
        zoo.build("digits-cnn"), tmp_path / "net.onnx", input_shape=(1, 8, 8), images=torch.rand(4, 1, 8, 8)
    )
    assert 0 <= difference <= 1e-5


class Wrong(nn.Module):
    """Does something else with tensors than with what torch.fx passes in, which is none."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2.0 if type(x) is Tensor else x * 3.0


def test_a_file_that_disagrees_is_not_written(tmp_path):
    with pytest.raises(LingraftError, match="differs from the model"):
        export_onnx(Wrong(), tmp_path / "net.onnx", input_shape=(4,))
    assert not list(tmp_path.iterdir())


class Softmax(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x, self.dim)


class Sorted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(x, 1)


class BatchMixer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(1, -1)


class Largest(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.max(1)[0]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        pytest.param(Sorted(), r"'cumsum'.*\(cumsum\) cannot be written", id="function"),
        pytest.param(nn.Sequential(nn.Softsign()), r"'0' \(Softsign\) cannot be written", id="layer"),
        pytest.param(Softmax(0), "mixes the images", id="softmax"),
        pytest.param(BatchMixer(), "mixes the images", id="batch"),
        pytest.param(Largest(), "cannot be written", id="two results"),
        pytest.param(nn.Sequential(nn.Linear(7, 2)), "does not take images of shape", id="shape"),
        pytest.param(nn.Identity(), "nothing to export", id="identity"),
    ],
)  # fmt: skip
def test_unsupported(tmp_path, model, message):
    with pytest.raises(LingraftError, match=message):
        export_onnx(model.eval(), tmp_path / "net.onnx", input_shape=(4,))
    assert not list(tmp_path.iterdir())


def test_unknown_form(tmp_path):
    with pytest.raises(LingraftError, match="output, input"):
        export_onnx(zoo.build("digits-cnn"), tmp_path / "net.onnx", input_shape=(1, 8, 8), form="inward")


@pytest.mark.parametrize("name", ["cnn_b_graft50", "resnet2b"])
def test_public_networks_go_out_again(problems_folder, round_trip, name):
    module = lingraft.load_onnx(problems_folder / name / "model.onnx")
    round_trip(module, module.input_shape)
