"""Verdicts on sigmoid and tanh networks with two inputs, compared with dense grids."""

from collections import Counter
from typing import Any

import pytest
import random_networks as nets
import torch
from torch import Tensor, nn

from lingraft.solver.region import Region


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
