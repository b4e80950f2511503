"""Instability of lines, had they their activation back."""

import torch
from torch import nn

import lingraft
from lingraft.data import ImageSet
from lingraft.grafting import Instability
from lingraft.grafting.instability import would_be_unstable

EPS = 0.1


def test_of_the_first_site_it_is_what_it_was_before_grafting(own_model: nn.Module, own_images: ImageSet) -> None:
    """What goes into the first site does not depend on what is grafted there."""
    few = own_images.take(3)
    before = Instability(EPS, "intervals").counts(own_model, few)
    mask = {name: torch.ones(values.shape, dtype=torch.bool) for name, values in before.items()}
    grafted = lingraft.graft(own_model, mask)
    assert all(not values.any() for values in Instability(EPS, "intervals").counts(grafted, few).values())
    found = would_be_unstable(grafted, few, EPS, "intervals")
    assert {n: v.shape for n, v in found.items()} == {n: v.shape for n, v in before.items()}
    first = next(iter(before))
    torch.testing.assert_close(found[first].double(), before[first].double())
    assert bool(found[first].any())
