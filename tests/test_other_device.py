"""Everything that takes a device works on one that is not the CPU.

There is no GPU where these tests run, so the other device is made up: its tensors hold their numbers on the CPU, say that
they are on "meta", and refuse to be combined with tensors of the CPU, as those of a GPU do.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from lingraft.attack.evaluation import Attack, evaluate
from lingraft.data import ImageSet, load
from lingraft.grafting import GraftingConfig
from lingraft.grafting.choose import score
from lingraft.model import zoo
from lingraft.model.sites import sites
from lingraft.model.surgery import graft, prepared, shapes
from lingraft.solver import verifier
from lingraft.solver.request import Request
from lingraft.solver.verifier import Verifier
from lingraft.training import TrainingConfig, loss_at, make_loss
from lingraft.training.step import take_step

pytestmark = pytest.mark.slow

ELSEWHERE = torch.device("meta")

#: A GPU, too, takes numbers of the CPU here: to copy them, and as indices.
MAY_MIX = ("aten::copy_", "aten::_to_copy", "aten::index")


class Far(Tensor):
    """A tensor elsewhere; `near` is its content on the CPU."""

    near: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, near: Tensor) -> "Far":
        strided = near.layout == torch.strided
        steps = {"strides": near.stride(), "storage_offset": near.storage_offset()} if strided else {}
        far = torch.Tensor._make_wrapper_subclass(cls, near.shape, dtype=near.dtype, device=ELSEWHERE, **steps)
        far.near = near
        return far

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _call(function, args, kwargs or {})

    @property
    def layout(self) -> torch.layout:
        return self.near.layout

    def tolist(self) -> Any:
        return self.near.tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a tensor of another device is no array")

    def where(self, condition: Tensor, other: Any) -> Tensor:
        return super().where(condition, other if isinstance(other, Tensor) else self.new_tensor(other))

    def new_tensor(self, data: Any, *, dtype: torch.dtype | None = None) -> Tensor:
        return Far(torch.tensor(data, dtype=dtype or self.dtype))

    def t(self) -> Tensor:
        return Far(self.near.t())


def _on_content(name: str) -> Callable[..., Tensor]:
    return lambda self, *args: Far(getattr(self.near, name)(*args))


for _name in ("to_dense", "coalesce", "to_sparse_csr", "crow_indices", "col_indices", "values", "indices"):
    setattr(Far, _name, _on_content(_name))  # torch looks at the layout before it asks us, and takes Far for dense


class Elsewhere(TorchDispatchMode):
    """Inside, tensors can be made elsewhere, and be moved there and back."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _call(function, args, kwargs or {})


def _call(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
    far = any(isinstance(tensor, Far) for tensor in tensors)
    name = function._schema.name
    near = [tuple(tensor.shape) for tensor in tensors if not isinstance(tensor, Far) and tensor.dim()]
    if far and near and not name.startswith(MAY_MIX):
        raise RuntimeError(f"{name} mixes devices: tensors of shapes {near} are on the CPU")
    content, options = tree_map(lambda value: value.near if isinstance(value, Far) else value, (args, kwargs))
    if options.get("device") is not None:
        far, options = torch.device(options["device"]) == ELSEWHERE, {**options, "device": "cpu"}
    elif name.startswith("aten::index"):
        far = isinstance(args[0], Far)
    found = function(*content, **options)
    if name.endswith("_") and not name.endswith("__"):
        return args[0]
    if "out" in kwargs:
        return kwargs["out"]
    return tree_map(lambda value: Far(value) if far and type(value) is Tensor else value, found)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    tensor, generator = torch.tensor, torch.Generator

    def made(data: Any, *, device: Any = None, **options: Any) -> Tensor:
        near = tensor(data, **options)
        return near if device is None else near.to(device)

    class Generator:
        """Numbers are drawn on the CPU in any case."""

        def __new__(cls, device: Any = None) -> Any:
            return generator()

    monkeypatch.setattr(torch, "tensor", made)
    monkeypatch.setattr(torch, "Generator", Generator)
    # inference mode does not ask us about every operation
    monkeypatch.setattr(torch, "inference_mode", lambda mode=True: torch.no_grad() if mode else torch.enable_grad())
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    with Elsewhere():
        yield
    torch.__future__.set_overwrite_module_params_on_conversion(before)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return zoo.build("digits-cnn").eval()


@pytest.fixture(scope="module")
def data() -> ImageSet:
    return load("digits", "train").take(12)


def test_devices_do_not_mix(elsewhere: None) -> None:
    far = torch.ones(3, device=ELSEWHERE)
    assert isinstance(far, Far)
    assert far.device == ELSEWHERE
    assert isinstance(2 * far + torch.tensor(1.0), Far)
    assert torch.equal(far.cpu(), torch.ones(3))
    with pytest.raises(RuntimeError, match="mixes devices"):
        far + torch.ones(3)
    with pytest.raises(TypeError, match="no array"):
        far.numpy()


def test_branch_and_bound(elsewhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that it needs: tightening, clipping, exact bounds, and the proof kept."""
    monkeypatch.setattr(verifier, "FIRST_TURN", 600.0)  # no turn for the search over the input
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 2)).eval()
    spec = torch.tensor([[1.0, -1.0]])
    with torch.no_grad():
        lowest = (model((torch.rand(20000, 8) < 0.5).float()) @ spec.t()).min()
    constraints = spec, (0.3 - lowest)[None]
    request = Request(model.to(ELSEWHERE), torch.full((1, 8), 0.5), None, eps=0.5, constraints=constraints)
    assert request.device == ELSEWHERE
    result = Verifier(request.network).verify(request.problem(0), 600.0, prove=True)
    assert (result.verdict, result.stage, result.proof is not None) == ("verified", "branch", True)
    assert result.domains > 0


def test_convolutions_and_grafted_neurons(elsewhere: None, model: nn.Module, data: ImageSet) -> None:
    """Sparse matrices, windows, masks."""
    masks = {site.name: torch.rand(site.shape) < 0.5 for site in sites(model, (1, 8, 8))}
    grafted = graft(model.to(ELSEWHERE), masks).eval()
    image = data.pixels()[0]
    label = int(grafted(image[None].to(ELSEWHERE)).argmax())
    request = Request(grafted, image[None], [label], eps=0.02)
    result = Verifier(request.network).verify(request.problem(0), 600.0)
    assert result.verdict in ("verified", "falsified")


def test_attacks(elsewhere: None, model: nn.Module, data: ImageSet) -> None:
    found = evaluate(model.to(ELSEWHERE), data, Attack(0.1, steps=3, restarts=2), device=ELSEWHERE)
    assert 0 <= found.ra <= found.sa <= 1


@pytest.mark.parametrize(
    "settings",
    [
        {"significance": "adversarial-gap"},
        {"significance": "hydra"},
        {"instability": "harm"},
        {"bounds": "alpha-crown"},
    ],
    ids=str,
)
def test_scores(elsewhere: None, model: nn.Module, data: ImageSet, settings: dict[str, str]) -> None:
    grafted = prepared(model.to(ELSEWHERE), shapes(sites(model, (1, 8, 8)))).to(ELSEWHERE)
    scores = score(grafted, data, GraftingConfig(0.05, images=10, bound_images=1, **settings))  # type: ignore[arg-type]
    assert scores.significance


@pytest.mark.parametrize("method", ["fat", "pgd", "trades", "ibp", "crown-ibp", "mtl-ibp"])
def test_training_steps(elsewhere: None, model: nn.Module, data: ImageSet, method: str) -> None:
    masks = {site.name: torch.rand(site.shape) < 0.5 for site in sites(model, (1, 8, 8))}
    grafted = graft(model.to(ELSEWHERE), masks).train()
    optimizer = torch.optim.SGD(grafted.parameters(), lr=0.01, momentum=0.9)
    loss = loss_at(make_loss(TrainingConfig(0.05, method=method, epochs=4)), 3.0)
    before = [parameter.detach().clone() for parameter in grafted.parameters()]
    images, labels = data.pixels().to(ELSEWHERE), data.labels.to(ELSEWHERE)
    take_step(grafted, optimizer, loss, images, labels, torch.Generator())
    after = list(grafted.parameters())
    assert all(isinstance(parameter, Far) for parameter in after)
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
