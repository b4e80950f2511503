"""Complete verdicts are never wrong: compared with exact minima on random problems, and with planted counterexamples."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import random_networks as nets
import torch
from exact_milp import Oracle
from torch import Tensor, nn

from lingraft.solver import verifier
from lingraft.solver.budget import Exhausted
from lingraft.solver.network import Network
from lingraft.solver.region import Region
from lingraft.solver.request import Request
from lingraft.solver.verifier import Problem, Verifier

Net = tuple[nn.Module, tuple[int, ...]]

#: How far from 0 an exact minimum may be for "unknown: numerical" to be a fair answer.
CLOSE = 1e-5


def _check(result: Any, model: nn.Module, region: Region, spec: Tensor, offset: Tensor, minimum: float) -> None:
    """The verdict must agree with the exact minimum over all margins, and a witness must be one."""
    if result.verdict == "verified":
        assert minimum > 0, f"verified at stage {result.stage}, but a margin reaches {minimum}"
    elif result.verdict == "unknown":
        assert result.reason == "numerical", result.reason
        assert abs(minimum) < CLOSE
    else:
        assert minimum < CLOSE, f"{result.verdict} at stage {result.stage}, but no margin falls below {minimum}"
    if result.verdict == "falsified":
        witness = result.witness.double()
        assert bool(((witness >= region.lower) & (witness <= region.upper)).all())
        assert float((_logits(model, witness) @ spec.t() + offset).min()) < CLOSE


def _problems(model: nn.Module, shape: tuple[int, ...], seed: int) -> Iterator[tuple]:
    """Two constraints C·y + d > 0 whose exact minimum is a bit above 0, then one of them below, then a label's ball."""
    generator = torch.Generator().manual_seed(seed)
    region = nets.box(shape, seed, (0.2, 0.4, 0.8)[seed % 3])
    spec = torch.randn(2, 3, generator=generator).double()
    exact = Oracle(model, region)
    lowest = torch.tensor([exact.minimum(exact.margin(row)).value for row in spec], dtype=torch.float64)
    center = _logits(model, (region.lower + region.upper) / 2) @ spec.t()
    near = (1e-2, 4e-2, 0.2)[seed // 3 % 3] * (center - lowest).max().clamp(min=1e-2)
    yield region, spec, near - lowest, float(near)
    below = torch.tensor([near, -near] if seed % 2 else [-near, near], dtype=torch.float64)
    yield region, spec, below - lowest, -float(near)
    image = nets.box(shape, seed, 0.0).lower
    eps = (0.05, 0.2, 0.5)[seed % 3]
    ball, rows = Region(image - eps, image + eps), nets.margins(int(_logits(model, image).argmax()))
    exact = Oracle(model, ball)
    minimum = min(exact.minimum(exact.margin(row)).value for row in rows)
    yield ball, rows, torch.zeros(2, dtype=torch.float64), minimum


def _logits(model: nn.Module, image: Tensor) -> Tensor:
    with torch.no_grad():
        return model(image[None])[0]


FAMILIES: dict[str, Callable[[int], Net]] = {
    "plain": lambda seed: nets.vector(seed, hidden=(6, 5)),
    "deep": lambda seed: nets.vector(seed, hidden=(5, 4, 3)),
    "leaky": lambda seed: nets.vector(seed, "leaky", hidden=(6, 5)),
    "residual": lambda seed: nets.residual_vector(seed, width=3, sign=1 - 2 * (seed % 2)),
    "max pooling": lambda seed: nets.max_pool(seed),
    "convolution": lambda seed: nets.conv(seed, None, ("relu", "leaky")[seed % 2], small=True),
}

#: Networks of each family, plain and grafted; three problems each, so 360 in all.
DRAWS = 10


@pytest.mark.slow
@pytest.mark.parametrize("grafted", [False, True], ids=["plain", "grafted"])
@pytest.mark.parametrize("family", FAMILIES)
def test_verdicts_equal_the_exact_ones(family: str, grafted: bool) -> None:
    """360 problems in all, most near the decision boundary, so that both verdicts and all stages occur."""
    verdicts: Counter[str] = Counter()
    branched = 0
    for seed in range(DRAWS):
        model, shape = FAMILIES[family](seed)
        if grafted:
            model = nets.grafted(model, shape, seed, share=0.3)
        for number, (region, spec, offset, minimum) in enumerate(_problems(model, shape, seed)):
            result = nets.verify(model, region, spec, offset, double=(seed + number) % 5 == 0)
            _check(result, model, region, spec, offset, minimum)
            verdicts[result.verdict] += 1
            branched += result.stage == "branch"
    assert sum(verdicts.values()) == 3 * DRAWS
    assert verdicts["verified"] >= DRAWS - 2  # the first problem of every network is provable
    assert verdicts["falsified"] >= DRAWS / 2
    assert branched >= 1


# --- planted counterexamples ---------------------------------------------------------------------------------------


class _Pocket(nn.Module):
    """Logits (1 − height·relu(width − ‖x − place‖₁), 0): misclassified only in a small pocket around `place`."""

    def __init__(self, place: Tensor, width: float, height: float):
        super().__init__()
        size = len(place)
        self.sides, self.spike, self.last = nn.Linear(size, 2 * size), nn.Linear(2 * size, 1), nn.Linear(1, 2)
        with torch.no_grad():
            self.sides.weight.copy_(torch.cat([torch.eye(size), -torch.eye(size)]))
            self.sides.bias.copy_(torch.cat([-place, place]))
            self.spike.weight.fill_(-1)
            self.spike.bias.fill_(width)
            self.last.weight.copy_(torch.tensor([[-height], [0.0]]))
            self.last.bias.copy_(torch.tensor([1.0, 0.0]))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.spike(torch.relu(self.sides(x)))))


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4, 6])
def test_planted_pockets_are_found_and_never_verified(size: int) -> None:
    """Gradients vanish outside the pocket, so attacks from random starts miss it; the search may not."""
    stages: Counter[str] = Counter()
    for seed in range(10):
        generator = torch.Generator().manual_seed(100 * size + seed)
        place = 0.1 + 0.8 * torch.rand(size, generator=generator, dtype=torch.float64)
        width = 10 ** -(1 + 2 * seed / 10)
        model = _Pocket(place, width, 1.2 / width).double().eval()
        region = Region(torch.zeros(size).double(), torch.ones(size).double())
        image = torch.where(place < 0.5, place + 0.45, place - 0.45)
        result = nets.verify(model, region, nets.margins(0, 2), image=image)
        assert result.verdict == "falsified", (result, width)
        assert float(_logits(model, result.witness.double())[0]) < 0
        stages[result.stage] += 1
    assert stages["branch"] + stages["boxes"] >= 5


@pytest.mark.parametrize("size", [2, 4, 6])
def test_pockets_outside_the_region_do_not_count(size: int) -> None:
    """The pocket's corner touches the region, but the margin there is still `left`: above 0, or just below."""
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        place = torch.rand(size, generator=generator, dtype=torch.float64)
        width, left = 0.05, (1e-4, 1e-2, 0.2)[seed % 3]
        place[seed % size] = 1.0 + width * (1 - (1 - left) / 1.2)
        model = _Pocket(place, width, 1.2 / width).double().eval()
        region = Region(torch.zeros(size).double(), torch.ones(size).double())
        image = torch.full((size,), 0.01).double()
        assert nets.verify(model, region, nets.margins(0, 2), image=image).verdict == "verified"
        offset = torch.tensor([-2 * left], dtype=torch.float64)
        assert nets.verify(model, region, nets.margins(0, 2), offset, image=image).verdict == "falsified"


@pytest.mark.parametrize("kind", ["relu", "tanh"])
@pytest.mark.parametrize("inputs", [2, 24])
def test_verdicts_do_not_depend_on_the_scale_of_the_outputs(kind, inputs):
    """Outputs around 1e-5, and a margin of a hundredth of their reach."""
    model, shape = nets.vector(6, kind, inputs=inputs, hidden=(6,), gain=2)
    region, spec = nets.box(shape, 5, 0.8 if inputs == 2 else 0.1), nets.margins(0)[:1]
    points = nets.points(region, 5, 4000, model)
    with torch.no_grad():
        margins = (model(points) @ spec.T)[:, 0]
    reach = margins.max() - margins.min()
    assert reach > 0.1
    for scale in (1.0, 2.0**-17):
        with torch.no_grad():
            for parameter in model[-1].parameters():
                parameter *= scale
        for above in (1e-2, -1e-2):
            offset = (scale * (above * reach - margins.min()))[None]
            result = nets.verify(model, region, spec, offset, image=points[margins.argmax()])
            assert result.verdict == ("verified" if above > 0 else "falsified")
            assert all(value <= scale * above * reach + 1e-12 for value in result.crown + result.alpha)


def test_numbers_that_underflow_prove_nothing() -> None:
    """3·2⁻¹⁰⁷⁴·x is 1 or 2 times 2⁻¹⁰⁷⁴ on [0.45, 0.5], and 1 in the middle: made large again, label 0 loses at 0.5."""
    model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2)).double().eval()
    with torch.no_grad():
        for layer, weight, bias in (
            (model[0], [[3 * 2.0**-1074]], [0.0]),
            (model[2], [[2.0**1000]], [0.0]),
            (model[4], [[0.0], [2.0**74]], [1.5, 0.0]),
        ):
            layer.weight.copy_(torch.tensor(weight, dtype=torch.float64))
            layer.bias.copy_(torch.tensor(bias))
    ends = torch.tensor([[0.45], [0.5]], dtype=torch.float64)
    assert model(ends).argmax(1).tolist() == [0, 1]
    problem = Problem(ends[0], Region(*ends), torch.tensor([[1.0, -1.0]]).double(), torch.zeros(1).double())
    assert Verifier(Network.from_module(model, (1,))).verify(problem, 5.0).verdict != "verified"


def test_what_boxes_prove_after_a_turn_of_branching_has_no_open_bound(monkeypatch):
    def turn(attempt, *_):
        attempt.result.branched = -1.0  # where it was when its time was over
        raise Exhausted("time")

    monkeypatch.setattr(verifier._Attempt, "_branch", turn)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 2
        values = model(2 * torch.rand(20000, 2) - 1).double()
    offset = 0.05 * (values.max() - values.min()) - values.min()
    region = {"lower": -torch.ones(1, 2), "upper": torch.ones(1, 2)}
    request = Request(model, torch.zeros(1, 2), None, constraints=(torch.ones(1, 1), offset[None]), **region)
    result = verifier.Verifier(request.network).verify(request.problem(0), 30)
    assert (result.verdict, result.stage, result.branched) == ("verified", "boxes", 0.0)
