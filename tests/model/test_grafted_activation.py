"""The grafted activation against its definition."""

import copy

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from lingraft import LingraftError
from lingraft.model import line_relu
from lingraft.model.activations import KNOWN, Activation
from lingraft.model.activations.relu import RELU, leaky_relu
from lingraft.model.grafted_activation import GraftedActivation, pack, unpack

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=3)


def random_site(base: str, shape: list[int], seed: int, share: float = 0.5, dtype: torch.dtype = torch.float32):
    """A site with some grafted neurons, each with a line of its own."""
    generator = torch.Generator().manual_seed(seed)
    site = GraftedActivation(record(base), shape).to(dtype)
    site.graft(torch.rand(shape, generator=generator) < share, 0.0, 0.0)
    with torch.no_grad():
        site.slope[0, site.mask] = torch.randn(site.grafted, generator=generator, dtype=dtype)
        site.intercept[0, site.mask] = torch.randn(site.grafted, generator=generator, dtype=dtype)
    return site


def record(base: str) -> Activation:
    return leaky_relu(0.2) if base == "leaky_relu" else KNOWN[base]


@settings(max_examples=60, deadline=None)
@given(
    base=st.sampled_from(["relu", "leaky_relu", "sigmoid", "tanh", "relu6", "gelu", "prelu"]),
    shape=SHAPES,
    batch=st.integers(1, 4),
    seed=st.integers(0, 999),
    last=st.booleans(),
)
def test_forward_is_the_definition_coordinate_by_coordinate(base, shape, batch, seed, last):
    site = random_site(base, shape, seed)
    x = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(seed + 1))
    x.view(-1)[0] = 0.0
    layout = torch.channels_last if last and len(shape) == 3 else torch.contiguous_format
    x = x.contiguous(memory_format=layout)
    y = site(x).detach()
    assert y.is_contiguous(memory_format=layout)
    slope, intercept = (values.flatten().tolist() for values in site.line())
    for n in range(batch):
        rows = zip(
            site.mask.flatten(),
            x[n].flatten(),
            record(base).module()(x).detach()[n].flatten(),
            y[n].flatten(),
            strict=True,
        )
        for i, (grafted, z, kept, result) in enumerate(rows):
            if grafted:
                torch.testing.assert_close(result, slope[i] * z + intercept[i])
            else:
                assert result == kept


@pytest.mark.parametrize("base", ["relu", "leaky_relu", "sigmoid", "tanh", "prelu"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_first_and_second_derivatives_match_finite_differences(base, layout):
    site = random_site(base, [3, 2, 4], seed=3, dtype=torch.float64)
    generator = torch.Generator().manual_seed(4)
    # away from the kink at 0, where there is no derivative
    x = torch.randn(5, 3, 2, 4, generator=generator, dtype=torch.float64)
    x = (x + 0.1 * x.sign()).contiguous(memory_format=layout).requires_grad_()
    lines = [site.slope.detach().clone().requires_grad_(), site.intercept.detach().clone().requires_grad_()]

    def run(x: Tensor, slope: Tensor, intercept: Tensor) -> Tensor:
        return torch.func.functional_call(site, {"slope": slope, "intercept": intercept}, (x,))

    assert gradcheck(run, (x, *lines))
    assert gradgradcheck(run, (x, *lines))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), cached=st.sampled_from([1, 7, 20, 1 << 18]), batch=st.integers(1, 9))
def test_gradients_do_not_depend_on_how_many_images_fit_in_the_cache(seed, cached, batch):
    site = random_site("relu", [3, 4], seed)
    x = torch.randn(batch, 3, 4, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    weights = torch.randn(batch, 3, 4, generator=torch.Generator().manual_seed(seed + 1))

    def gradients(values: int) -> tuple[Tensor, ...]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(line_relu, "CACHED_VALUES", values)
            y = site(x)
            (first,) = torch.autograd.grad((y * weights).sum(), x, create_graph=True)
            total = (first**2).sum() + (y * weights).sum()
            return torch.autograd.grad(total, [x, site.slope, site.intercept])

    def plainly() -> tuple[Tensor, ...]:
        slope, intercept = site.line()
        y = torch.where(site.mask, slope * x + intercept, torch.relu(x))
        (first,) = torch.autograd.grad((y * weights).sum(), x, create_graph=True)
        total = (first**2).sum() + (y * weights).sum()
        return torch.autograd.grad(total, [x, site.slope, site.intercept], allow_unused=True, materialize_grads=True)

    if site.grafted:
        torch.testing.assert_close(gradients(cached), plainly())


@pytest.mark.parametrize("base", [name for name, known in KNOWN.items() if known.modules])
def test_nothing_grafted_is_the_activation_itself(base):
    site = GraftedActivation(record(base), (4, 3, 3))
    x = torch.randn(6, 4, 3, 3, requires_grad=True)
    assert torch.equal(site(x), record(base).module()(x))
    assert torch.equal(*(torch.autograd.grad(m(x).square().sum(), x)[0] for m in (site, record(base).module())))


def test_gradients_of_neurons_that_are_not_grafted_are_exactly_zero():
    site = random_site("relu", [5, 4], seed=0)
    site(torch.randn(3, 5, 4)).square().sum().backward()
    assert not site.slope.grad[0, ~site.mask].any()
    assert site.slope.grad[0, site.mask].all()
    assert not site.intercept.grad[0, ~site.mask].any()


def test_pruned_neurons_are_zero_and_are_not_trained():
    site = random_site("relu", [5, 4], seed=0)
    pruned = torch.zeros(5, 4, dtype=torch.bool)
    pruned[:2] = True
    earlier = site.mask.clone()
    site.prune(pruned)
    x = torch.randn(3, 5, 4)
    assert not site(x)[:, pruned & ~earlier].any()
    assert torch.equal(site.mask, earlier | pruned)
    site(x).square().sum().backward()
    assert not site.slope.grad[0, pruned & ~earlier].any()
    assert site.slope.grad[0, earlier].all()

    only_pruned = GraftedActivation(RELU, (5, 4))
    only_pruned.prune(pruned)
    assert not only_pruned(x).requires_grad


def test_grafting_again_keeps_the_lines_that_are_there():
    site = random_site("relu", [30], seed=0)
    mask, slope = site.mask.clone(), site.slope.detach().clone()
    site.graft(torch.ones(30, dtype=torch.bool), 0.7, -0.2)
    assert torch.equal(site.slope[0, mask], slope[0, mask])
    assert (site.slope[0, ~mask] == 0.7).all()
    assert (site.intercept[0, ~mask] == -0.2).all()


def test_state_holds_bits_and_only_the_lines_of_grafted_neurons():
    site = random_site("relu", [5, 13], seed=0)
    site.prune(torch.rand(5, 13) < 0.2)
    state = site.state_dict()
    learned = int((site.mask & ~site.fixed).sum())
    assert state["mask"].dtype == torch.uint8
    assert state["mask"].shape == (9,)  # 65 bits
    assert state["slope"].shape == state["intercept"].shape == (learned,)
    other = GraftedActivation(RELU, (5, 13))
    other.load_state_dict(copy.deepcopy(state))
    x = torch.randn(4, 5, 13)
    assert torch.equal(other(x), site(x))
    assert torch.equal(other.fixed, site.fixed)
    assert other.grafted == site.grafted


@pytest.mark.parametrize(
    ("key", "value"),
    [("mask", torch.zeros(3, dtype=torch.uint8)), ("mask", torch.zeros(9)), ("slope", torch.zeros(2))],
)
def test_state_that_does_not_fit_is_refused(key, value):
    site = random_site("relu", [5, 13], seed=0)
    state = {**site.state_dict(), key: value}
    with pytest.raises(RuntimeError, match=r"mask|slope"):
        site.load_state_dict(state)
    with pytest.raises(RuntimeError, match="Missing"):
        site.load_state_dict({})


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_bits_give_the_mask_back(values):
    mask = torch.tensor(values)
    assert torch.equal(unpack(pack(mask), mask.shape), mask)


def test_evaluating_first_does_not_spoil_training():
    site = random_site("relu", [4, 3, 3], seed=0)
    x = torch.randn(2, 4, 3, 3)
    with torch.inference_mode():
        expected = site(x)
    result = site(x.requires_grad_())
    result.sum().backward()
    assert torch.equal(result, expected)


def test_masks_and_inputs_of_another_shape_are_refused():
    site = GraftedActivation(RELU, (4, 3))
    with pytest.raises(LingraftError, match=r"\(4, 3\).*\(3, 4\)|\(3, 4\).*\(4, 3\)"):
        site.graft(torch.ones(3, 4, dtype=torch.bool), 0.1, 0.0)
    with pytest.raises(LingraftError, match=r"torch\.bool"):
        site.graft(torch.ones(4, 3), 0.1, 0.0)
    with pytest.raises(LingraftError, match=r"shape \(4, 3\).*\(2, 3\)"):
        site(torch.zeros(1, 2, 3))


@pytest.mark.parametrize(("base", "line"), [("relu", (0.4, 0)), ("sigmoid", (0.25, 0.5)), ("tanh", (1, 0))])
def test_neurons_start_from_the_line_of_their_activation(base: str, line: tuple[float, float]):
    site = GraftedActivation(record(base), (3,))
    site.graft(torch.tensor([True, False, False]))
    site.graft(torch.tensor([False, True, False]), slope=0.7)
    slope, intercept = (values.tolist() for values in site.line())
    assert slope == pytest.approx([line[0], 0.7, 0])
    assert intercept == pytest.approx([line[1], line[1], 0])


def test_ungrafted_neurons_have_their_activation_back() -> None:
    site = GraftedActivation(RELU, (4,))
    site.graft(torch.tensor([True, True, False, False]), 2.0, 1.0)
    site.prune(torch.tensor([False, False, True, False]))
    x = torch.tensor([[-1.0, -1.0, 3.0, -1.0]])
    assert site(x).tolist() == [[-1.0, -1.0, 0.0, 0.0]]
    site.ungraft(torch.tensor([True, False, True, True]))
    assert site(x).tolist() == [[0.0, -1.0, 3.0, 0.0]]
    assert site.grafted == 1
