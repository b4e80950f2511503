"""Real certificates about small networks of every kind, for claims that are nearly false; and the truth about them."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exact import Unknown, rational
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from truth import Claim, Small

import lingraft
from lingraft.checker.format import Certificate, encode
from lingraft.checker.onnx_reader import load_network
from lingraft.formats.certificate_writer import CertificateWriter, claim_of_image
from lingraft.formats.onnx_export import export_onnx
from lingraft.model.surgery import graft
from lingraft.solver.request import Request
from lingraft.solver.verifier import Verifier, _Attempt

#: Seconds for one proof and for one minimum; how often a claim is looked for, and the leaves that it should need.
TIMEOUT, MINIMUM, ATTEMPTS, LEAVES = 20.0, 3.0, 4, (2, 60)


@dataclass
class Case:
    """A network, a certificate about it, and what is known of the claim.

    `edge` (W, n) are points where the claim is violated, or nearly so, in a region that is a little larger; `factor` is
    how much larger the ball has to be (1 for other claims).
    """

    name: str
    onnx: bytes
    certificate: bytes
    small: Small
    claim: Claim
    edge: np.ndarray
    factor: float
    leaves: int


class Residual(nn.Module):
    """Two convolutions and what came in."""

    def __init__(self, channels: int):
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.one, self.two = nn.ReLU(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.second(self.one(self.first(x))) + x)


class Joined(nn.Module):
    """Two branches, joined."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.last = nn.Linear(6, 5), nn.Linear(6, 4), nn.Linear(15, 3)
        self.one, self.two = nn.ReLU(), nn.LeakyReLU(0.125)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.cat([self.one(self.left(x)), x, self.two(self.right(x))], dim=1))


def _grafted() -> nn.Module:
    model = MODELS["convolution"][1]().eval()
    generator = torch.Generator().manual_seed(3)
    masks = {site.name: torch.rand(site.shape, generator=generator) < 0.35 for site in lingraft.sites(model, (1, 3, 4))}
    return graft(model, masks, slope=0.4, intercept=0.1)


MODELS: dict[str, tuple[tuple[int, ...], Callable[[], nn.Module]]] = {
    "dense": ((6,), lambda: nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 3))),
    "convolution": ((1, 3, 4), lambda: nn.Sequential(nn.Conv2d(1, 2, 2, stride=(1, 2), padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(24, 6), nn.ReLU(), nn.Linear(6, 3))),
    "groups and dilation": ((2, 2, 3), lambda: nn.Sequential(nn.Conv2d(2, 4, 2, padding=1, dilation=2, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(24, 5), nn.ReLU(), nn.Linear(5, 3))),
    "residual": ((1, 3, 3), lambda: nn.Sequential(Residual(1), nn.Flatten(), nn.Linear(9, 4))),
    "residual with stride": ((1, 4, 3), lambda: nn.Sequential(nn.Conv2d(1, 2, 3, stride=2, padding=1), nn.ReLU(), Residual(2), nn.Flatten(), nn.Linear(8, 3))),
    "max pool": ((1, 3, 4), lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(4, 3))),
    "padded max pool": ((1, 3, 3), lambda: nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.MaxPool2d(2, 2, 1), nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))),
    "average pool": ((1, 3, 4), lambda: nn.Sequential(nn.Conv2d(1, 2, 2, padding=1), nn.ReLU(), nn.AvgPool2d(2, 2, 1), nn.Flatten(), nn.Linear(18, 6), nn.ReLU(), nn.Linear(6, 3))),
    "global average": ((2, 2, 3), lambda: nn.Sequential(nn.Conv2d(2, 4, 2), nn.ReLU(), nn.Conv2d(4, 6, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))),
    "batch norm": ((1, 3, 4), lambda: nn.Sequential(nn.Conv2d(1, 2, 2, stride=(1, 2), padding=1), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(24, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))),
    "leaky": ((5,), lambda: nn.Sequential(nn.Linear(5, 9), nn.LeakyReLU(0.1), nn.Linear(9, 7), nn.LeakyReLU(0.3), nn.Linear(7, 3))),
    "concat": ((6,), Joined),
    "grafted": ((1, 3, 4), _grafted),
    "grafted before": ((1, 3, 4), _grafted),
    "open batch": ((4,), lambda: nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 2))),
    "one input": ((1,), lambda: nn.Sequential(nn.Linear(1, 9), nn.ReLU(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 3))),
    "short weights": ((3,), lambda: nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))),
    "written by hand": ((1, 2, 4), lambda: nn.Identity()),
    "few inputs": ((3,), lambda: nn.Sequential(nn.Linear(3, 10), nn.ReLU(), nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 3))),
}  # fmt: skip

#: How each network is asked: a ball with or without clip or a box; a label, constraints, or groups of them.
QUESTIONS = [
    ("clipped ball", "label"),
    ("ball", "constraints"),
    ("box", "constraints"),
    ("box", "groups"),
    ("ball", "label"),
    ("clipped ball", "constraints"),
]


def made(name: str, seed: int) -> nn.Module:
    """With weights that are large enough for many open neurons."""
    torch.manual_seed(seed)
    model = MODELS[name][1]()
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
                part.running_mean.normal_(0, 0.2)
                part.running_var.uniform_(0.3, 2)
                part.weight.uniform_(-0.5, 1.5)
                part.bias.normal_(0, 0.3)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter *= 2.0
            if name == "short weights":
                parameter.copy_((parameter * 4).round() / 4)
    return model.eval()


def by_hand(seed: int) -> bytes:
    """What other exporters write: MatMul, constants behind Div and Sub, Pad, Transpose, Squeeze, computed shapes."""
    rng = np.random.default_rng(seed)

    def some(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.8, shape).astype(np.float32)

    whole = {"pads": [0, 0, 1, 0, 0, 0, 0, 1], "rest": [-1], "zero": [0], "axis": [2]}
    weights = {
        "mean": some(1, 1, 1, 4), "devi": np.abs(some(1)) + 0.5, "kern": some(3, 1, 2, 2), "wone": some(24, 6), "bias": some(6), "wtwo": some(6, 3),
        "more": some(3), "sign": np.array([-1.0], np.float32), **{key: np.array(value, np.int64) for key, value in whole.items()},
    }  # fmt: skip
    nodes = [
        ("Sub", "x mean", "a", {}), ("Div", "a devi", "b", {}), ("Pad", "b pads", "c", {}),
        ("Conv", "c kern", "d", {"kernel_shape": [2, 2], "group": 1}), ("Relu", "d", "e", {}),
        ("Transpose", "e", "f", {"perm": [0, 2, 3, 1]}), ("Shape", "f", "g", {}), ("Gather", "g zero", "g0", {"axis": 0}),
        ("Concat", "g0 rest", "h", {"axis": 0}), ("Reshape", "f h", "i", {}), ("Unsqueeze", "i axis", "j", {}), ("Squeeze", "j axis", "j2", {}),
        ("MatMul", "j2 wone", "k", {}), ("Add", "k bias", "l", {}), ("LeakyRelu", "l", "m", {"alpha": 0.25}), ("Identity", "m", "n", {}), ("Dropout", "n", "o", {}),
        ("Gemm", "o wtwo", "p", {"alpha": 0.5}), ("Mul", "sign p", "q", {}), ("Sub", "q more", "r", {}), ("Mul", "r sign", "y", {}),
    ]  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node(kind, given.split(), [out], **more) for kind, given, out, more in nodes], "by hand",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        [numpy_helper.from_array(array, key) for key, array in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


def networks(name: str, seed: int, folder: Path) -> tuple[nn.Module, bytes]:
    """A model and its file."""
    path, shape = folder / "net.onnx", MODELS[name][0]
    if name == "written by hand":
        path.write_bytes(by_hand(seed))
        return lingraft.load_onnx(path), path.read_bytes()
    model = made(name, seed)
    form = "input" if name == "grafted before" else "output"
    export_onnx(model, path, input_shape=shape, form=form, dynamic_batch=name == "open batch")
    return model, path.read_bytes()


class Maker:
    """Makes cases about one network."""

    def __init__(self, name: str, seed: int, folder: Path):
        self.name, self.rng = name, np.random.default_rng(seed)
        self.model, self.content = networks(name, seed, folder)
        self.shape = MODELS[name][0] if name != "written by hand" else (1, 2, 4)
        self.checked = load_network(folder / "net.onnx")
        self.small = Small(self.content)
        self.classes = len(self.small.outputs)

    def case(self, region: str, kind: str) -> Case | None:
        """A case of a claim of this kind that needs a tree; None if there is none soon."""
        best = None
        for attempt in range(ATTEMPTS):
            try:
                found = self._case(region, kind, 0.995 if attempt % 2 else 0.97)
            except Unknown:
                continue
            if found is None or found.leaves > LEAVES[1]:
                continue
            if best is None or found.leaves > best.leaves:
                best = found
            if best.leaves >= LEAVES[0]:
                break
        return best

    def _case(self, region: str, kind: str, share: float) -> Case | None:
        image = self.rng.random(self.shape).astype(np.float32)
        if self.name == "short weights":
            image = (np.round(image * 8) / 8).astype(np.float32)
        clip = (0.0, 1.0) if region == "clipped ball" else None
        at_image = self.small.near(image.reshape(1, -1).astype(float))[:, 0]
        spec, offset, group, label = self._spec(kind, at_image)
        eps = float(self.rng.choice([0.12, 0.2, 0.3, 0.5]))
        box = None
        if region == "box":
            radius = eps * self.rng.uniform(0.4, 1.0, self.shape)
            box = image.astype(np.float64) - radius, image.astype(np.float64) + radius
        claim = claim_of(image, eps, clip, box, spec, offset, group)
        factor = 1.0
        if kind == "label":
            eps, factor, edge = self._radius(image, clip, claim, share)
        else:
            least, point = self.small.least(claim, MINIMUM)
            reach = np.ptp(self._samples(claim))
            offset = offset - least + (1 - share) * 4 * max(reach, 0.05)
            edge = [point]
        claim = claim_of(image, eps, clip, box, spec, offset, group)
        return self._proven(image, eps, clip, box, claim, label, np.array(edge, dtype=float), factor)

    def _spec(self, kind: str, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, int | None]:
        if kind == "label":
            label = int(np.argmax(at))
            spec = -np.delete(np.eye(self.classes), label, axis=0)
            spec[:, label] = 1
            return spec, np.zeros(len(spec)), 1, label
        group = 2 if kind == "groups" else 1
        spec = self.rng.normal(0, 1, (2 * group, self.classes)).round(2)
        rows = spec @ at
        return spec, -rows, group, None  # each row is 0 at the image

    def _samples(self, claim: Claim) -> np.ndarray:
        low, high = claim.lower.astype(float), claim.upper.astype(float)
        points = low + self.rng.random((200, len(low))) * (high - low)
        return claim.spec.astype(float) @ self.small.near(points)

    def _radius(
        self, image: np.ndarray, clip: Any, claim: Claim, share: float
    ) -> tuple[float, float, list[np.ndarray]]:
        """ε just below the largest for which the claim holds, how much larger a false one is, and where it fails."""
        low, high, edge = 0.0, 1.0, None
        for step in range(12):
            middle = (low + high) / 2 if step else 1.0
            found = self.small.violation(replace_region(claim, image, middle, clip))
            if found is not None:
                high, edge = middle, found
            elif not step:
                raise Unknown("robust everywhere")
            else:
                low = middle
        eps = share * low
        if low < 0.01 or edge is None or self.small.least(replace_region(claim, image, eps, clip), MINIMUM)[0] < 1e-5:
            raise Unknown("hardly robust, or the search was no good")
        return eps, high * 1.0005 / eps, [edge]

    def _proven(
        self,
        image: np.ndarray,
        eps: float,
        clip: Any,
        box: Any,
        claim: Claim,
        label: int | None,
        edge: np.ndarray,
        factor: float,
    ) -> Case | None:
        where: dict[str, Any] = {"eps": eps, "clip": clip}
        if box is not None:
            where = {"lower": torch.from_numpy(box[0])[None], "upper": torch.from_numpy(box[1])[None]}
        model, checked = self.model, self.checked
        spec, offset = claim.spec.astype(float), claim.offset.astype(float)
        asked: Any = (torch.from_numpy(spec), torch.from_numpy(offset))
        if claim.group > 1:
            count = len(offset) // claim.group
            layer = nn.Linear(self.classes, len(offset), dtype=torch.float64)
            with torch.no_grad():
                layer.weight.copy_(asked[0])
                layer.bias.copy_(asked[1])
            maximum = (nn.Unflatten(1, (count, 1, claim.group)), nn.MaxPool2d((1, claim.group)), nn.Flatten())
            model = nn.Sequential(_double(model), layer, *maximum).eval()
            checked = checked.with_largest(spec, offset, claim.group)
            asked = (torch.eye(count, dtype=torch.float64), torch.zeros(count, dtype=torch.float64))
        images = torch.from_numpy(image)[None].to(next(model.parameters()).dtype)
        labels = None if label is None else torch.tensor([label])
        request = Request(model, images, labels, constraints=None if label is not None else asked, **where)
        with pytest.MonkeyPatch.context() as patch:
            if self.name == "few inputs":  # is proven by boxes alone
                patch.setattr(_Attempt, "_branch", lambda *_: None)
            result = Verifier(request.network).verify(request.problem(0), TIMEOUT, prove=True)
        if result.verdict != "verified":
            return None
        stated = replace(claim_of_image(request, 0, {"case": self.name}), label=label, group=claim.group)
        if label is None:
            stated.constraints = spec, offset
        if box is None:
            stated.image = image
        certificate: Certificate = CertificateWriter(request.network, checked).certificate(stated, result)
        return Case(self.name, self.content, encode(certificate), self.small, claim, edge, factor, certificate.leaves)


def _double(model: nn.Module) -> nn.Module:
    import copy

    return copy.deepcopy(model).double()


def claim_of(
    image: np.ndarray, eps: float, clip: Any, box: Any, spec: np.ndarray, offset: np.ndarray, group: int
) -> Claim:
    """The claim in fractions."""
    if box is not None:
        return Claim(*(rational(side.reshape(-1)) for side in box), rational(spec), rational(offset), group)
    empty = Claim(np.zeros(0), np.zeros(0), rational(spec), rational(offset), group)
    return replace_region(empty, image, eps, clip)


def replace_region(claim: Claim, image: np.ndarray, eps: float, clip: Any) -> Claim:
    """The same claim about a ball."""
    center, radius = rational(image.reshape(-1)), Fraction(eps)
    low, high = center - radius, center + radius
    if clip is not None:
        low, high = np.maximum(low, Fraction(clip[0])), np.minimum(high, Fraction(clip[1]))
    return replace(claim, lower=low, upper=high)


def make_cases(names: list[str] | None = None, each: int = 3, seed: int = 0) -> list[Case]:
    """Up to `each` cases about each network."""
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(MODELS):
            if names is not None and name not in names:
                continue
            maker = Maker(name, seed + number, Path(folder))
            for i in range(each):
                found = maker.case(*QUESTIONS[(number + i) % len(QUESTIONS)])
                if found is not None:
                    cases.append(found)
    return cases
