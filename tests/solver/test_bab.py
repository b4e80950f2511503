"""The pool of open domains; verdicts on sigmoid and tanh networks with two inputs, compared with dense grids."""

from collections import Counter
from typing import Any

import pytest
import random_networks as nets
import torch
from torch import Tensor, nn

from lingraft.solver.bab import Pool
from lingraft.solver.dual import Domains
from lingraft.solver.region import Region


def _numbered(numbers: range, taps: int = 3) -> Domains:
    """Domains whose tensors all tell their number."""
    node = torch.tensor(list(numbers))
    tall = node.float().repeat(taps, 1)
    return Domains(torch.zeros_like(node), -tall, tall, torch.ones_like(tall, dtype=torch.int8), tall, tall, tall, node)


@pytest.mark.parametrize("seed", range(3))
def test_a_pool_gives_back_what_was_put_in_lowest_first(seed: int) -> None:
    """Whatever the order of adding and taking; also domains whose bounds overflowed, which no proof has closed."""
    generator = torch.Generator().manual_seed(seed)
    pool, expected, number = Pool(torch.empty(0), _numbered(range(0))), dict[int, float](), 0
    for _ in range(40):
        count = int(torch.randint(1, 9, (), generator=generator))
        if torch.rand((), generator=generator) < 0.6:
            bounds = torch.randn(count, generator=generator)
            bounds[torch.rand(count, generator=generator) < 0.1] = torch.inf
            bounds[torch.rand(count, generator=generator) < 0.1] = torch.nan
            pool.add(bounds, _numbered(range(number, number + count)))
            for i, bound in enumerate(bounds.nan_to_num(nan=torch.inf, posinf=torch.inf).tolist()):
                expected[number + i] = bound
            number += count
        else:
            taken = pool.take(count)
            assert len(taken) == min(count, len(expected))
            bounds_taken = [expected.pop(node) for node in taken.node.tolist()]
            assert max(bounds_taken, default=-torch.inf) <= min(expected.values(), default=torch.inf)
            for tensor in (-taken.lower, taken.upper, taken.alpha, taken.beta):
                assert torch.equal(tensor, taken.node.float().expand_as(tensor))
        assert len(pool) == len(expected)
    assert sorted(pool.domains.node[pool.lowest()].tolist()) == sorted(expected)
    assert len(pool.bounds) <= number


def test_a_part_of_a_pool_is_a_copy() -> None:
    pool = Pool(torch.tensor([3.0, 1.0, 2.0]), _numbered(range(3)))
    part = pool.part(pool.lowest()[:2])
    part.take(1)
    part.add(torch.tensor([0.0]), _numbered(range(9, 10)))
    assert pool.domains.node[pool.lowest()].tolist() == [1, 2, 0]
    assert part.domains.node[part.lowest()].tolist() == [9, 2]


def _grid(region: Region, count: int = 301) -> Tensor:
    where = torch.linspace(0, 1, count, dtype=torch.float64)
    return region.lower + (region.upper - region.lower) * torch.cartesian_prod(where, where)


@pytest.mark.slow
@pytest.mark.parametrize("grafted", [False, True], ids=["plain", "grafted"])
@pytest.mark.parametrize(("kind", "gain", "radius"), [("sigmoid", 3, 0.8), ("tanh", 2, 0.5)])
def test_verdicts_agree_with_grids(kind: str, gain: float, radius: float, grafted: bool) -> None:
    """Margins whose minimum on the grid is a bit above 0 or a bit below; the search splits smooth neurons for them."""
    verdicts: Counter[str] = Counter()
    split = 0
    for seed in range(8):
        model, shape = nets.vector(seed, kind, inputs=2, hidden=(4,), gain=gain)
        if grafted:
            model = nets.grafted(model, shape, seed, share=0.3)
        region = nets.box(shape, seed, radius)
        spec = nets.margins(seed % 3)[:1]
        with torch.no_grad():
            values = (model(_grid(region)) @ spec.t())[:, 0]
        lowest, reach = values.min(), values.max() - values.min()
        for share in (0.01, -0.02):
            offset = (share * reach - lowest)[None]
            result = nets.verify(model, region, spec, offset)
            _check(result, model, region, spec, offset, share > 0)
            verdicts[result.verdict] += 1
            split += result.verdict == "verified" and result.domains > 0
    assert verdicts == {"verified": 8, "falsified": 8}
    assert split or grafted, "some proofs of plain networks need splits"


def _check(result: Any, model: nn.Module, region: Region, spec: Tensor, offset: Tensor, holds: bool) -> None:
    assert result.verdict == ("verified" if holds else "falsified"), result
    if result.verdict == "falsified":
        witness = result.witness.double()
        assert bool(((witness >= region.lower) & (witness <= region.upper)).all())
        with torch.no_grad():
            assert float((model(witness[None]) @ spec.t() + offset).min()) < 1e-5
