"""Significance: how much a neuron matters for the classification (the paper, Sections 4 and "Different methods")."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from lingraft.attack import fgsm, pgd
from lingraft.ball import Ball, Radius, largest, radius
from lingraft.data import Batches, ImageSet
from lingraft.device import device_of
from lingraft.errors import LingraftError
from lingraft.model.sites import grafted_activations, sites
from lingraft.model.surgery import prepared, shapes
from lingraft.progress import progress
from lingraft.randomness import derive_generator

if TYPE_CHECKING:
    from lingraft.grafting.config import GraftingConfig


class Significance(Protocol):
    """Gives every neuron a number, higher for one that matters more."""

    def score(self, model: nn.Module, data: ImageSet) -> dict[str, Tensor]:
        """Site name → a tensor of the neuron shape. The same model, data and settings give the same scores."""
        ...


@dataclass(frozen=True)
class ActivationGradient:
    """GAP: the mean over images of |∂loss/∂activation|, the loss being the cross entropy of the image.

    Paper: Ye et al., "Accelerating CNN training by pruning activation gradients", ECCV 2020. With `eps` above 0 the
    loss is that of an adversarial image in the ball: of FGSM, or of PGD with `steps` above 1. With `before` it is the
    gradient of the activation's input, as the grafting paper's authors take it: 0 wherever a ReLU is off.
    """

    eps: Radius = 0.0
    steps: int = 1
    seed: int = 0
    batch: int = 128
    before: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", radius(self.eps, alike=True))

    def score(self, model: nn.Module, data: ImageSet) -> dict[str, Tensor]:
        """Site name → the mean absolute gradient, of the neuron shape."""
        watched = watch(model, data)
        generator = derive_generator(device_of(watched), self.seed, "activation gradient")
        sums: dict[str, Tensor] = {}
        ball = Ball.around(self.eps, data.images.shape, data.clip)
        with recording(watched, self.before) as outputs:
            for images, labels in _batches(watched, data, self.batch, "activation gradients"):
                if largest(self.eps) > 0:
                    images = self._attacked(ball, watched, images, labels, generator)
                loss = F.cross_entropy(watched(images), labels, reduction="sum")
                gradients = torch.autograd.grad(loss, list(outputs.values()), materialize_grads=True)
                for name, gradient in zip(outputs, gradients, strict=True):
                    sums[name] = sums.get(name, 0.0) + gradient.abs().sum(0, dtype=torch.float64)
        return _means(sums, data)

    def _attacked(
        self, ball: Ball, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator
    ) -> Tensor:
        if self.steps == 1:
            return fgsm(model, images, labels, ball)
        return pgd(model, images, labels, ball, generator, self.steps)


@dataclass(frozen=True)
class ActivationMagnitude:
    """SAP: the mean over images of |activation|.

    Paper: Dhillon et al., "Stochastic activation pruning for robust adversarial defense", ICLR 2018, which prunes at
    random with probabilities by magnitude; the grafting paper removes those of least magnitude, and so do we.
    """

    batch: int = 128

    def score(self, model: nn.Module, data: ImageSet) -> dict[str, Tensor]:
        """Site name → the mean magnitude, of the neuron shape."""
        watched = watch(model, data)
        sums: dict[str, Tensor] = {}
        with recording(watched) as outputs, torch.no_grad():
            for images, _ in _batches(watched, data, self.batch, "activations"):
                watched(images)
                for name, output in outputs.items():
                    sums[name] = sums.get(name, 0.0) + output.abs().sum(0, dtype=torch.float64)
        return _means(sums, data)


@dataclass(frozen=True)
class RandomSignificance:
    """A random order, as a check that the others mean something."""

    seed: int = 0

    def score(self, model: nn.Module, data: ImageSet) -> dict[str, Tensor]:
        """Site name → numbers from [0, 1), of the neuron shape; `data` is used for its shape only."""
        generator = derive_generator("cpu", self.seed, "random significance")
        found = sites(model, tuple(data.images.shape[1:]))
        return {s.name: torch.rand(s.shape, generator=generator, dtype=torch.float64) for s in found}


@dataclass(frozen=True)
class KnownSignificance:
    """A significance that has a name, for `significance=` and `--significance`.

    One of your own needs nothing but this record: `SIGNIFICANCES["mine"] = KnownSignificance("what it is", lambda
    config: Mine(…))` before its name is used. (One for a single call needs no name: `lingraft.score(…,
    significance=Mine())`.)
    """

    title: str
    #: the object that scores, from the settings that the user chose
    make: Callable[["GraftingConfig"], Significance]
    #: whether the scores depend on how many neurons are to be grafted
    of_ratio: bool = False


#: The one list of significances: name → what it is. A file that has one adds it here, as hydra.py does.
SIGNIFICANCES: dict[str, KnownSignificance] = {
    "gap": KnownSignificance("mean |∂loss/∂activation|", lambda config: ActivationGradient(seed=config.seed)),
    "gap-before": KnownSignificance(
        "mean |∂loss/∂ the activation's input|, as in the authors' code",
        lambda config: ActivationGradient(seed=config.seed, before=True),
    ),
    "adversarial-gap": KnownSignificance(
        "the same as gap at FGSM images", lambda config: ActivationGradient(config.eps, seed=config.seed)
    ),
    "sap": KnownSignificance("mean |activation|", lambda config: ActivationMagnitude()),
    "random": KnownSignificance("random", lambda config: RandomSignificance(config.seed)),
}


def watch(model: nn.Module, data: ImageSet) -> fx.GraphModule:
    """A copy of `model` in eval mode that computes the same and in which every site is a GraftedActivation."""
    return prepared(model, shapes(sites(model, tuple(data.images.shape[1:])))).eval().requires_grad_(False)


@contextmanager
def recording(watched: nn.Module, before: bool = False) -> Iterator[dict[str, Tensor]]:
    """Inside, the outputs (or inputs, `before`) of every site in the last forward pass, in order, with their graph."""
    outputs: dict[str, Tensor] = {}

    def keep(name: str, output: Tensor) -> Tensor:
        # the weights need no gradient here, so the graph begins at the first site
        outputs[name] = output if output.requires_grad or not torch.is_grad_enabled() else output.requires_grad_()
        return outputs[name]

    handles = [
        site.register_forward_pre_hook(lambda _module, inputs, name=name: keep(name, inputs[0]))
        if before
        else site.register_forward_hook(lambda _module, _inputs, output, name=name: keep(name, output))
        for name, site in grafted_activations(watched).items()
    ]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def _batches(model: nn.Module, data: ImageSet, size: int, what: str) -> Iterator[tuple[Tensor, Tensor]]:
    batches = Batches(data, size, device=device_of(model))
    with progress(what, len(batches)) as advance:
        for images, labels in batches:
            yield images, labels
            advance()


def _means(sums: Mapping[str, Tensor], data: ImageSet) -> dict[str, Tensor]:
    """Sums over the images → means, on the CPU, sites in the order of the forward pass."""
    broken = [name for name, total in sums.items() if not torch.isfinite(total).all()]
    if broken:
        raise LingraftError(
            f"the model gives NaN or infinite values at {broken[0]!r}. Check its weights and the images."
        )
    return {name: (total / len(data)).cpu().contiguous() for name, total in sums.items()}
