"""Complete verdicts are never wrong: compared with exact minima on random problems, and with planted counterexamples."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lingraft.verification.region import Region

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
        assert float((model(witness[None])[0].detach() @ spec.t() + offset).min()) < CLOSE


def _constraint_problems(nets: Any, oracle: Any, model: nn.Module, shape: tuple, seed: int) -> Iterator[tuple]:
    """Two constraints C·y + d > 0 whose exact minimum is just above 0, then one of them just below."""
    generator = torch.Generator().manual_seed(seed)
    region = nets.box(shape, seed, (0.2, 0.4, 0.8)[seed % 3])
    spec = torch.randn(2, 3, generator=generator).double()
    exact = oracle(model, region)
    lowest = torch.tensor([exact.minimum(exact.margin(row)).value for row in spec], dtype=torch.float64)
    center = model(((region.lower + region.upper) / 2)[None])[0].detach() @ spec.t()
    near = (2e-3, 1e-2, 5e-2)[seed // 3 % 3] * (center - lowest).max().clamp(min=1e-3)
    yield region, spec, near - lowest, float(near)
    below = torch.tensor([near, -near] if seed % 2 else [-near, near], dtype=torch.float64)
    if bool((center - lowest + below > 0).all()):
        yield region, spec, below - lowest, -float(near)


def _label_problems(nets: Any, oracle: Any, model: nn.Module, shape: tuple, seed: int) -> Iterator[tuple]:
    """Robustness of the label at the center of balls on both sides of the largest that is robust."""
    center = nets.box(shape, seed, 0.0).lower
    label = int(model(center[None])[0].argmax())
    spec, offset = nets.margins(label), torch.zeros(2, dtype=torch.float64)

    def ball(eps: float) -> tuple[Region, float]:
        region = Region(center - eps, center + eps)
        exact = oracle(model, region)
        return region, min(exact.minimum(exact.margin(row)).value for row in spec)

    small, large = 0.0, 0.2
    while ball(large)[1] > 0 and large < 3:
        large *= 2
    for _ in range(4):
        middle = (small + large) / 2
        small, large = (middle, large) if ball(middle)[1] > 0 else (small, middle)
    for eps in (small, large):
        region, lowest = ball(eps)
        yield region, spec, offset, lowest


FAMILIES: dict[str, tuple[Callable[[Any, int], Net], int]] = {
    "plain": (lambda nets, seed: nets.vector(seed, hidden=(7, 6)), 6),
    "deep": (lambda nets, seed: nets.vector(seed, hidden=(5, 5, 4)), 6),
    "leaky": (lambda nets, seed: nets.vector(seed, "leaky", hidden=(6, 6)), 6),
    "residual": (lambda nets, seed: nets.residual_vector(seed, sign=1 - 2 * (seed % 2)), 6),
    "max pooling": (lambda nets, seed: nets.max_pool(2 * seed), 6),
    "convolution": (lambda nets, seed: nets.conv(seed, None, ("relu", "leaky")[seed % 2], small=True), 6),
}


@pytest.mark.parametrize("grafted", [False, True], ids=["plain", "grafted"])
@pytest.mark.parametrize("family", FAMILIES)
def test_verdicts_equal_the_exact_ones(nets: Any, oracle: Any, family: str, grafted: bool) -> None:
    """About 140 problems in all, near the decision boundary, so that both verdicts and all stages occur."""
    build, count = FAMILIES[family]
    verdicts: Counter[str] = Counter()
    branched = 0
    for seed in range(count):
        model, shape = build(nets, seed)
        if grafted:
            model = nets.grafted(model, shape, seed, share=0.3)
        make = _label_problems if seed % 3 == 0 else _constraint_problems
        for number, (region, spec, offset, minimum) in enumerate(make(nets, oracle, model, shape, seed)):
            result = nets.verify(model, region, spec, offset, double=(seed + number) % 5 == 0)
            _check(result, model, region, spec, offset, minimum)
            verdicts[result.verdict] += 1
            branched += result.stage == "branch"
    print(family, grafted, dict(verdicts), branched)
    total = sum(verdicts.values())
    assert total > 1.7 * count
    assert verdicts["verified"] > total / 3
    assert verdicts["falsified"] > total / 3
    assert branched > total / (10 if grafted else 5)


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


@pytest.mark.parametrize("size", [2, 4, 6])
def test_planted_pockets_are_found_and_never_verified(nets: Any, size: int) -> None:
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
        assert float(model(result.witness.double()[None])[0, 0]) < 0
        stages[result.stage] += 1
    assert stages["branch"] >= 5


@pytest.mark.parametrize("size", [2, 4, 6])
def test_pockets_outside_the_region_do_not_count(nets: Any, size: int) -> None:
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
