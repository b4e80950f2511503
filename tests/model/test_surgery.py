"""Grafting copies of models."""

import copy

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, nn
from torch.nn import functional as F

import lingraft
from lingraft import LingraftError
from lingraft.model import zoo
from lingraft.model.grafted_activation import GraftedActivation
from lingraft.model.surgery import masks, prepared, shapes
from lingraft.model.tracing import trace
from lingraft.training import TrainingConfig, make_loss


def random_masks(model: nn.Module, shape: tuple[int, ...], share: float, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {s.name: torch.rand(s.shape, generator=generator) < share for s in lingraft.sites(model, shape)}


def by_hand(model: nn.Module, mask: dict[str, Tensor], slope: float, intercept: float, x: Tensor) -> Tensor:
    """The grafted model, computed by running the graph of the original and replacing what each site gives."""
    from torch.fx import Interpreter

    from lingraft.model.sites import sites_of

    traced = trace(copy.deepcopy(model))
    names = {node: site.name for node, site in sites_of(traced).items()}

    class Replacing(Interpreter):
        def run_node(self, n):
            if n not in names:
                return super().run_node(n)
            z = self.fetch_args_kwargs_from_env(n)[0][0].clone()
            base = super().run_node(n)
            chosen = mask.get(names[n])
            return base if chosen is None else torch.where(chosen, slope * z + intercept, base)

    return Replacing(traced).run(x.clone())


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["functional", "resnet", "leaky"]),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    slope=st.floats(-1, 1),
    intercept=st.floats(-1, 1),
    seed=st.integers(0, 99),
)
def test_grafted_models_compute_what_the_mask_says(name, share, slope, intercept, seed):
    model = MODELS[name]
    mask = random_masks(model, (1, 4, 4), share, seed)
    x = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(seed))
    grafted = lingraft.graft(model, mask, slope, intercept, input_shape=(1, 4, 4))
    torch.testing.assert_close(grafted(x), by_hand(model, mask, slope, intercept, x))


MODELS: dict[str, nn.Module] = {}


@pytest.fixture(autouse=True)
def _models(own):
    MODELS.update({name: own(name) for name in ("functional", "resnet", "leaky")})


@pytest.mark.parametrize("name", [name for name in zoo.MODELS if not name.startswith("conv-huge")])
def test_nothing_grafted_is_the_network_of_the_zoo_bit_for_bit(name):
    torch.manual_seed(0)
    model, shape = zoo.build(name), zoo.MODELS[name].input_shape
    grafted = prepared(model, shapes(lingraft.sites(model, shape)))
    x, y = torch.rand(4, *shape), torch.arange(4)
    assert torch.equal(grafted(x), model(x))
    # and in training: one step of fast adversarial training with GradAlign
    loss = make_loss(TrainingConfig(0.1, epochs=1))
    for network in (model, grafted):
        loss(network, x, y, torch.Generator().manual_seed(0))[0].backward()
    for key, parameter in model.named_parameters():
        assert torch.equal(grafted.get_parameter(key).grad, parameter.grad)


def test_nothing_grafted_is_any_model_bit_for_bit(own_model):
    x = torch.rand(5, 1, 4, 4)
    grafted = lingraft.graft(own_model, random_masks(own_model, (1, 4, 4), share=0.0))
    assert torch.equal(grafted(x), own_model(x))


def test_the_original_is_untouched(own_model):
    before = {name: tensor.clone() for name, tensor in own_model.state_dict().items()}
    x = torch.rand(2, 1, 4, 4)
    expected = own_model(x)
    grafted = lingraft.graft(own_model, random_masks(own_model, (1, 4, 4), 0.5))
    with torch.no_grad():
        for parameter in grafted.parameters():
            parameter.add_(1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in own_model.state_dict().items())
    assert torch.equal(own_model(x), expected)
    assert not any(isinstance(module, GraftedActivation) for module in own_model.modules())


def test_modes_are_kept(own):
    model = own("resnet").train()
    model.layer[0].bn1.eval()
    grafted = lingraft.graft(model, random_masks(model, (1, 4, 4), 0.5))
    assert grafted.training
    assert grafted.get_submodule("layer.0.bn2").training
    assert not grafted.get_submodule("layer.0.bn1").training
    assert not lingraft.graft(model.eval(), random_masks(model, (1, 4, 4), 0.5)).training


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("way", ["dropout", "branch"])
def test_a_forward_that_looks_at_its_mode_is_refused(training, way):
    """A graph has one forward for both modes: that of a model in training mode would drop values in eval mode."""

    class Moody(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            x = torch.relu(self.layer(x))
            if way == "dropout":
                return F.dropout(x, 0.5, self.training)
            return x + 1 if self.training else x

    with pytest.raises(LingraftError, match=r"self\.training.*nn\.Dropout"):
        lingraft.graft(Moody().train(training), {})


def test_only_one_call_of_a_reused_module_is_grafted(own):
    model = own("resnet")
    mask = {"layer.0.relu_2": torch.ones(4, 4, 4, dtype=torch.bool)}
    x = torch.rand(2, 1, 4, 4)
    torch.testing.assert_close(lingraft.graft(model, mask, 0.3)(x), by_hand(model, mask, 0.3, 0.0, x))


def test_an_activation_in_place_changes_what_comes_after_it():
    class InPlace(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x = x * 1
            doubled = x * 2
            positive = F.relu(x, inplace=True)
            return doubled + positive + x  # x is relu(x) here

    model, x = InPlace(), torch.randn(4, 6)
    nothing = lingraft.graft(model, {"relu": torch.zeros(6, dtype=torch.bool)})
    assert torch.equal(nothing(x), model(x))
    line = lingraft.graft(model, {"relu": torch.ones(6, dtype=torch.bool)}, slope=0.5)
    torch.testing.assert_close(line(x), 2 * x + 0.5 * x + 0.5 * x)


def test_grafting_a_grafted_model_adds_neurons_and_keeps_lines(own_model):
    first = random_masks(own_model, (1, 4, 4), 0.3, seed=1)
    second = random_masks(own_model, (1, 4, 4), 0.3, seed=2)
    once = lingraft.graft(own_model, first, 0.1, 0.2)
    twice = lingraft.graft(once, second, 0.6, -0.3)
    for name, mask in masks(twice).items():
        site, both = twice.get_submodule(name), first[name] | second[name]
        assert torch.equal(mask, both)
        assert torch.equal(site.line()[0], 0.1 * first[name] + 0.6 * (both & ~first[name]))
        assert torch.equal(site.line()[1], 0.2 * first[name] + -0.3 * (both & ~first[name]))
    assert torch.equal(masks(once)[name], first[name])


def test_pruned_neurons_are_zero_and_have_nothing_to_learn(own):
    model = own("functional")
    mask = random_masks(model, (1, 4, 4), 0.5)
    pruned = lingraft.pruned(model, mask)
    x = torch.rand(3, 1, 4, 4)
    torch.testing.assert_close(pruned(x), by_hand(model, mask, 0.0, 0.0, x))
    pruned(x).sum().backward()
    sites = [m for m in pruned.modules() if isinstance(m, GraftedActivation)]
    assert all(site.slope.grad is None and site.intercept.grad is None for site in sites)
    # lines next to them can be learned, and the zeros stay
    both = lingraft.graft(pruned, {name: ~chosen for name, chosen in mask.items()}, 0.4)
    both(x).sum().backward()
    site = both.get_submodule("relu")
    assert torch.equal(site.line()[0], 0.4 * ~mask["relu"])
    assert not site.slope.grad[0, mask["relu"]].any()


def test_models_in_double_precision_stay_so(own_model):
    model = own_model.double()
    grafted = lingraft.graft(model, random_masks(model, (1, 4, 4), 0.5))
    assert grafted(torch.rand(2, 1, 4, 4, dtype=torch.float64)).dtype == torch.float64


def test_bad_masks_are_refused(own):
    model = own("functional")
    good = torch.zeros(12, dtype=torch.bool)
    with pytest.raises(LingraftError, match=r"'relu' has shape \(11,\).*\(12,\)"):
        lingraft.graft(model, {"relu": good[:11]}, input_shape=(1, 4, 4))
    with pytest.raises(LingraftError, match=r"shape \(11,\).*\(12,\)"):  # without input_shape: at the first pass
        lingraft.graft(model, {"relu": good[:11]})(torch.rand(1, 1, 4, 4))
    with pytest.raises(LingraftError, match=r"unknown site 'relux'.*mean 'relu'"):
        lingraft.graft(model, {"relux": good})
    with pytest.raises(LingraftError, match=r"not be list.*lingraft\.select"):
        lingraft.graft(model, [torch.ones(12, dtype=torch.bool)])
    with pytest.raises(LingraftError, match="'relu' must be a boolean"):
        lingraft.graft(model, {"relu": good.float()})
    with pytest.raises(LingraftError, match="without neurons"):
        lingraft.graft(model, {"relu": good[:0]})
    with pytest.raises(LingraftError, match="must be finite"):
        lingraft.graft(model, {"relu": good}, slope=float("nan"))
    once = lingraft.graft(model, {"relu": good})
    with pytest.raises(LingraftError, match=r"site 'relu'.*\(11,\).*\(12,\)"):
        lingraft.graft(once, {"relu": good[:11]})


def test_nan_weights_are_refused(own):
    model = own("leaky")
    with torch.no_grad():
        model.conv.weight[0] = torch.nan
    with pytest.raises(LingraftError, match=r"NaN or infinite weights in conv\.weight"):
        lingraft.graft(model, {})
