"""Learned significance: Hydra, extended from weights to activations as in the paper."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lingraft.ball import Ball, Radius, radius
from lingraft.data import Batches, ImageSet
from lingraft.device import device_of
from lingraft.errors import LingraftError
from lingraft.grafting.significance import SIGNIFICANCES, ActivationMagnitude, KnownSignificance, watch
from lingraft.model.sites import grafted_activations
from lingraft.progress import progress
from lingraft.randomness import derive_generator
from lingraft.training.fast import FastAdversarialLoss


@dataclass(frozen=True)
class Hydra:
    """Scores learned by gradient descent on the adversarial loss of the pruned network, the weights being fixed.

    Paper: Sehwag et al., "HYDRA: pruning adversarially robust neural networks", NeurIPS 2020. In each step the share
    1 − `ratio` of neurons with the highest scores in the network is kept and the others give 0; the gradient passes
    straight through this choice to all scores. Hydra starts a layer's scores at its weights divided by the largest of
    them, here: the mean magnitude of a site's activations divided by the largest. Adam takes the place of SGD, because
    gradients of activations differ by orders of magnitude between sites. The loss is the paper's: FGSM and GradAlign.
    """

    ratio: float
    eps: Radius
    epochs: int = 5
    lr: float = 0.01
    batch: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.ratio <= 1:
            raise LingraftError(f"the ratio of neurons to prune must lie between 0 and 1, not {self.ratio}.")
        object.__setattr__(self, "eps", radius(self.eps, alike=True))

    def score(self, model: nn.Module, data: ImageSet) -> dict[str, Tensor]:
        """Site name → learned scores, of the neuron shape."""
        watched = watch(model, data)
        device = device_of(watched)
        start = ActivationMagnitude().score(model, data)
        largest = {name: float(values.max()) or 1.0 for name, values in start.items()}
        scores = {name: (values / largest[name]).float().to(device).requires_grad_() for name, values in start.items()}
        optimizer = torch.optim.Adam(scores.values(), lr=self.lr)
        loss_of = FastAdversarialLoss(Ball.around(self.eps, data.images.shape, data.clip))
        order = derive_generator("cpu", self.seed, "hydra order")
        noise = derive_generator(device, self.seed, "hydra noise")
        batches = Batches(data, self.batch, shuffle=True, generator=order, device=device)
        masks: dict[str, Tensor] = {}
        for name, site in grafted_activations(watched).items():
            site.register_forward_hook(lambda _module, _inputs, output, name=name: output * masks[name])
        with progress("Hydra", self.epochs * len(batches)) as advance:
            for _ in range(self.epochs):
                for images, labels in batches:
                    masks |= _straight_through(scores, self.ratio)
                    loss, _ = loss_of(watched, images, labels, noise)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    advance(note=f"loss {loss.item():.3f}")
        return {name: values.detach().double().cpu() for name, values in scores.items()}


def _straight_through(scores: dict[str, Tensor], ratio: float) -> dict[str, Tensor]:
    """1 for the kept neurons, 0 for the others, with the gradient of the scores themselves."""
    flat = torch.cat([values.detach().flatten() for values in scores.values()])
    dropped = torch.zeros_like(flat)
    order = torch.argsort(flat, stable=True)
    dropped[order[: round(ratio * len(flat))]] = 1
    kept = (1 - dropped).split([values.numel() for values in scores.values()])
    return {
        name: part.view_as(values) + (values - values.detach())
        for (name, values), part in zip(scores.items(), kept, strict=True)
    }


SIGNIFICANCES["hydra"] = KnownSignificance(
    "learned", lambda config: Hydra(config.ratio, config.eps, seed=config.seed), of_ratio=True
)
