"""AutoAttack, the field's usual measure of robust accuracy, with the attacks of the package torchattacks."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from lingraft.attack.ball import bounds
from lingraft.errors import LingraftError

#: Steps of the attacks that follow gradients, targets of those that have one, and queries of the one that does not:
#: those of the paper. torchattacks' own AutoAttack has 10 steps, which finds less.
STEPS, TARGETS, QUERIES = 100, 9, 5000

#: The targeted loss compares the fourth largest logit with others.
FEWEST_CLASSES = 4


def require_torchattacks() -> None:
    """Refuse AutoAttack where its package is not installed."""
    if find_spec("torchattacks") is None:
        raise LingraftError(
            "AutoAttack needs the package torchattacks. Use pip install 'lingraft[autoattack]', or, as it asks for old"
            " versions of packages that it does not need here, pip install --no-deps torchattacks."
        )


def autoattack(model: nn.Module, images: Tensor, labels: Tensor, eps: float, generator: torch.Generator) -> Tensor:
    """Four attacks, each on what the ones before left: APGD, APGD and FAB on nine targets each, and Square.

    Paper: Croce and Hein, "Reliable evaluation of adversarial robustness with an ensemble of diverse parameter-free
    attacks", ICML 2020.
    Shape: images (N, C, H, W) or (N, features) in [0, 1], labels (N,) → the same shape, in [0, 1] and within ε.
    """
    require_torchattacks()
    from torchattacks import APGD, APGDT, FAB, Square  # an optional dependency

    with torch.no_grad():
        classes = model(images[:1].clone()).shape[1]
    if classes < FEWEST_CLASSES:
        raise LingraftError(f"AutoAttack needs {FEWEST_CLASSES} classes, and there are {classes}. Use --attack pgd.")
    seed = int(torch.randint(1 << 31, (1,), generator=generator, device=generator.device))
    lower, upper = bounds(images, eps)
    target = _Pictures(model, images)
    some = {"eps": eps, "seed": seed, "n_restarts": 1}
    targets = {"steps": STEPS, "n_classes": min(classes, TARGETS + 1)}
    attacks = (
        APGD(target, steps=STEPS, loss="ce", **some),
        APGDT(target, **targets, **some),
        FAB(target, multi_targeted=True, **targets, **some),
        Square(target, n_queries=QUERIES, **some),
    )
    found = images.clone()
    left = torch.arange(len(images), device=images.device)
    with _apart(model, images.device):
        for attack in attacks:
            if len(left):
                point = attack(target.shown(images[left]), labels[left]).detach().view_as(images[left])
                point = torch.minimum(torch.maximum(point, lower[left]), upper[left])
                with torch.no_grad():
                    broken = model(point.clone()).argmax(1) != labels[left]
                found[left[broken]] = point[broken]
                left = left[~broken]
    return found


class _Pictures(nn.Module):
    """A model as these attacks want it: its images, whatever their shape, are (N, C, H, W)."""

    def __init__(self, model: nn.Module, images: Tensor):
        super().__init__()
        self.model, self.shape = model, images.shape[1:]
        self.picture = self.shape if len(self.shape) == 3 else torch.Size((1, 1, self.shape.numel()))
        self.eval()

    def shown(self, images: Tensor) -> Tensor:
        """Images of the model as (N, C, H, W)."""
        return images.reshape(-1, *self.picture)

    def forward(self, pictures: Tensor) -> Tensor:
        """Logits (N, classes)."""
        logits: Tensor = self.model(pictures.reshape(-1, *self.shape).clone())
        return logits


@contextmanager
def _apart(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Leave random numbers and gradients of others as they are: these attacks seed torch and fill `grad`."""
    devices = [device] if device.type == "cuda" else []
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with torch.random.fork_rng(devices), torch.inference_mode(False), torch.enable_grad():
        try:
            for parameter in trained:
                parameter.requires_grad_(False)
            yield
        finally:
            for parameter in trained:
                parameter.requires_grad_(True)
