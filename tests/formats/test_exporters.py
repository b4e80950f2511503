"""Networks as torch.onnx.export writes them, with today's exporter and the one before: read, run and verified."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import lingraft
from lingraft.work.checking import check
from lingraft.work.properties import verify_property

pytestmark = pytest.mark.slow  # an export takes a second or two


class Calls(nn.Module):
    """A model whose forward pass is a function of its layers and of the input."""

    def __init__(self, forward: Callable[[Any, Tensor], Tensor], **layers: nn.Module):
        super().__init__()
        self.function = forward
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.register_buffer("mean", torch.full((1, 1, 1), 0.4))
        self.register_buffer("deviation", torch.full((1, 1, 1), 0.3))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def dense(*activations: nn.Module) -> nn.Module:
    """Fully connected, with these activations between the layers."""
    layers = [part for activation in activations for part in (nn.Linear(6, 6), activation)]
    return nn.Sequential(*layers, nn.Linear(6, 3))


def image(*layers: nn.Module, size: int) -> nn.Module:
    """A convolution of a picture of 9 × 9 and what follows, up to `size` features."""
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), *layers, nn.Flatten(), nn.Linear(size, 3))


PICTURE, ROW = (1, 9, 9), (6,)

#: a model and the shape of its input
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: dense(nn.ReLU(), nn.LeakyReLU(0.1)), ROW),
    "cnn": (lambda: image(nn.Conv2d(4, 8, 3, stride=2, groups=2), nn.ReLU(), nn.MaxPool2d(2), size=8), PICTURE),
    "large enough to keep its weights elsewhere": (lambda: image(size=196), PICTURE),
    "view": (lambda: Calls(lambda s, x: s.b(s.a(x).relu().view(x.size(0), -1)), a=nn.Conv2d(1, 2, 3), b=nn.Linear(98, 3)), PICTURE),
    "reshape": (lambda: Calls(lambda s, x: s.b(s.a(x).relu().reshape(-1, 2 * 49)), a=nn.Conv2d(1, 2, 3), b=nn.Linear(98, 3)), PICTURE),
    "adaptive pool": (lambda: nn.Sequential(nn.Conv2d(1, 4, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)), PICTURE),
    "adaptive pool to one": (lambda: image(nn.AdaptiveAvgPool2d(1), size=4), PICTURE),
    "mean": (lambda: Calls(lambda s, x: s.b(s.a(x).relu().mean((2, 3))), a=nn.Conv2d(1, 4, 3), b=nn.Linear(4, 3)), PICTURE),
    "unflatten": (lambda: nn.Sequential(nn.Linear(6, 16), nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)), ROW),
    "residual with batch norm": (
        lambda: Calls(lambda s, x: s.c((s.n(s.a(x)) + s.b(x)).relu().flatten(1)), a=nn.Conv2d(1, 2, 3), n=nn.BatchNorm2d(2), b=nn.Conv2d(1, 2, 3), c=nn.Linear(98, 3)),
        PICTURE,
    ),
    "concat": (lambda: Calls(lambda s, x: s.c(torch.cat([s.a(x).relu(), s.b(x)], 1)), a=nn.Linear(6, 4), b=nn.Linear(6, 3), c=nn.Linear(7, 3)), ROW),
    "chunk": (lambda: Calls(lambda s, x: s.c(torch.cat([part.relu() if i else part for i, part in enumerate(s.a(x).chunk(2, 1))], 1)), a=nn.Linear(6, 6), c=nn.Linear(6, 3)), ROW),
    "slices": (lambda: Calls(lambda s, x: s.b(s.a(x[:, :, 1:-1, ::2]).relu().flatten(1)), a=nn.Conv2d(1, 2, 3), b=nn.Linear(30, 3)), PICTURE),
    "dropout": (lambda: dense(nn.Sequential(nn.ReLU(), nn.Dropout(0.5))), ROW),
    "normalized by buffers": (lambda: Calls(lambda s, x: s.b(s.a((x - s.mean) / s.deviation).relu().flatten(1)), a=nn.Conv2d(1, 2, 3), b=nn.Linear(98, 3)), PICTURE),
    "weight norm": (lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)), nn.ReLU(), nn.Linear(6, 3)), ROW),
    "sequence": (lambda: nn.Sequential(nn.Unflatten(1, (2, 10)), nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.AvgPool1d(2), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(6, 3)), (20,)),
    "transposed convolution": (lambda: nn.Sequential(nn.Linear(6, 8), nn.Unflatten(1, (2, 2, 2)), nn.ConvTranspose2d(2, 2, 4, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)), ROW),
    "resizing": (lambda: image(nn.AvgPool2d(3, 2), nn.Upsample(scale_factor=2), nn.Conv2d(4, 1, 3), nn.ReLU(), nn.Upsample(scale_factor=2, mode="bilinear"), size=64), PICTURE),
    "ceil_mode": (lambda: image(nn.MaxPool2d(2, ceil_mode=True), nn.AvgPool2d(3, 2, ceil_mode=True), size=16), PICTURE),
    "clipped": (lambda: Calls(lambda s, x: s.c(s.b(s.a(x).clamp(-0.5, 0.75))), a=nn.Linear(6, 6), b=dense(nn.ReLU6(), nn.PReLU(), nn.Hardtanh()), c=nn.Linear(3, 3)), ROW),
    "smooth": (lambda: dense(nn.GELU(), nn.SiLU(), nn.Hardswish(), nn.Softplus(), nn.ELU(), nn.Mish()), ROW),
    "softmax at the end": (lambda: nn.Sequential(dense(nn.ReLU()), nn.Softmax(1)), ROW),
}  # fmt: skip

#: Today's exporter takes long, so that most models have either a fixed batch or an open one, in turn; this one has both.
BOTH = ["cnn"]


def export(name: str, path: Path, dynamo: bool, batch: str) -> tuple[nn.Module, tuple[int, ...]]:
    """Write a model as people do it, and give it with the shape of its input."""
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model = make().eval()
    x = torch.rand(2 if batch == "open" else 1, *shape)
    options: dict[str, Any] = {}
    if batch == "open":
        options = (
            {"dynamic_shapes": ({0: torch.export.Dim("n")},)}
            if dynamo
            else {"dynamic_axes": {"x": {0: "n"}}, "input_names": ["x"]}
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about its exporters
        torch.onnx.export(model, (x,), path, dynamo=dynamo, verbose=False, **options)
    return model, shape


CASES = [
    pytest.param(name, dynamo, batch, id=f"{name}-{'dynamo' if dynamo else 'legacy'}-{batch}")
    for place, name in enumerate(MODELS)
    for dynamo in (True, False)
    for batch in ("fixed", "open")
    if not dynamo or name in BOTH or (batch == "open") == place % 2
]


@pytest.mark.parametrize(("name", "dynamo", "batch"), CASES)
def test_read_run_and_verified(tmp_path: Path, name: str, dynamo: bool, batch: str) -> None:
    path = tmp_path / "n.onnx"
    model, shape = export(name, path, dynamo, batch)
    network = lingraft.load_onnx(path)
    assert network.input_shape == shape
    x = torch.rand(5, *shape, generator=torch.Generator().manual_seed(0))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    entry = session.get_inputs()[0].name
    theirs = np.concatenate([session.run(None, {entry: one[None].numpy()})[0] for one in x])
    with torch.no_grad():
        ours, original = network(x), model(x)
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.numpy(), original.numpy(), rtol=1e-4, atol=1e-5)
    surest = slice(i := int(original.topk(2).values.diff(dim=1).abs().argmax()), i + 1)
    (result,) = lingraft.verify(network, x[surest], original[surest].argmax(1), eps=1e-4, timeout=60, workers=0)
    assert result.verdict == "verified"


PROPERTY = """(declare-const X_0 Real)
{}
(declare-const Y_0 Real)
(declare-const Y_1 Real)
(declare-const Y_2 Real)
{}
(assert (<= Y_{} Y_{}))
"""


def test_certificates_cover_the_weights_beside_the_file(tmp_path: Path) -> None:
    """Verified and certified as it is; no other weights have these certificates."""
    path = tmp_path / "n.onnx"
    model, shape = export("large enough to keep its weights elsewhere", path, True, "fixed")
    weights = tmp_path / "n.onnx.data"
    assert weights.exists()
    x = torch.rand(1, *shape)
    with torch.no_grad():
        order = model(x)[0].argsort(descending=True).tolist()
    declared = "\n".join(f"(declare-const X_{i} Real)" for i in range(1, x.numel()))
    bounds = "\n".join(
        f"(assert (>= X_{i} {v - 1e-4:.9f}))\n(assert (<= X_{i} {v + 1e-4:.9f}))"
        for i, v in enumerate(x.flatten().tolist())
    )
    vnnlib = tmp_path / "p.vnnlib"
    vnnlib.write_text(PROPERTY.format(declared, bounds, order[0], order[2]))
    verdict = verify_property(path, vnnlib, timeout=60, certificates=tmp_path / "certificates", check=True)
    assert verdict.answer.word == "unsat"
    assert verdict.certificates is not None
    assert (verdict.certificates.certificates, verdict.certificates.checked) == (1, 1)
    found = check(tmp_path / "certificates", model=path, vnnlib=vnnlib)
    assert found
    assert found.files[0].points > 0
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    (file,) = check(tmp_path / "certificates", model=path).files
    assert not file.accepted
    assert "another model" in str(file.reason)
