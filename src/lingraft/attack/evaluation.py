"""Standard and robust accuracy (SA and RA) of a model on a data set (the paper, Section 5, "Evaluation metrics")."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from lingraft.attack import fgsm, find_unbroken
from lingraft.attack.autoattack import require_torchattacks
from lingraft.attack.pgd import default_step
from lingraft.attack.registry import FUNCTIONS
from lingraft.attack.search import Watch
from lingraft.ball import PIXELS, Ball, Radius, Range, eps_name, largest, radius, shown
from lingraft.data import Batches, ImageSet
from lingraft.errors import LingraftError
from lingraft.memory import kept_memory
from lingraft.names import lookup
from lingraft.progress import progress
from lingraft.randomness import derive_generator

#: By how much rounding may take an attacked image out of the ball, as a share of its values, or of 1.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Attack:
    """An attack and all that its result depends on beside model and data.

    `name` is pgd, fgsm (one step from the image itself), autoattack (which has steps and restarts of its own), or one
    that was registered with `lingraft.attack.register`, to which `steps` and `step_size` mean nothing. `eps` is a
    number, a text such as "2/255", or a tensor with a radius for each feature, or for each image; without a `step_size`
    steps are 2.5·ε/steps long.
    """

    eps: Radius
    name: str = "pgd"
    steps: int = 100
    restarts: int = 100
    step_size: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        lookup("attack", self.name, {"pgd": None, **FUNCTIONS})
        object.__setattr__(self, "eps", radius(self.eps))
        for what, value in (("steps", self.steps), ("restarts", self.restarts)):
            if value < 1:
                raise LingraftError(f"an attack needs {what} of at least 1, not {value}.")
        if self.step_size is not None and not (math.isfinite(self.step_size) and self.step_size > 0):
            raise LingraftError(f"the step size of an attack must be above 0, not {self.step_size}.")
        if self.name == "fgsm":
            object.__setattr__(self, "steps", 1)
            object.__setattr__(self, "restarts", 1)
            object.__setattr__(self, "step_size", self.eps if isinstance(self.eps, float) else None)
        elif self.name != "pgd":
            if self.name == "autoattack":
                require_torchattacks()
                if not isinstance(self.eps, float):
                    raise LingraftError("AutoAttack needs one radius for all. Give eps as a number, or use pgd.")
                object.__setattr__(self, "restarts", 1)
            object.__setattr__(self, "steps", 1)
            object.__setattr__(self, "step_size", None)
        elif self.step_size is None and isinstance(self.eps, float):
            object.__setattr__(self, "step_size", default_step(self.eps, self.steps))

    def __str__(self) -> str:
        return self.name if self.name in ("fgsm", "autoattack") else f"{self.name}-{self.steps}x{self.restarts}"


@dataclass(frozen=True)
class Evaluation:
    """SA on all `images_sa` images; RA on the first `images` of them, against `attack`. Accuracies are in [0, 1]."""

    attack: Attack
    sa: float
    images_sa: int
    ra: float
    images: int
    #: standard accuracy on the attacked images alone, the most that RA can be
    sa_attacked: float
    seconds: float
    #: the range of values that the attack stayed in
    clip: Range = field(default=PIXELS, kw_only=True)

    @property
    def name(self) -> str:
        """Names attack, ε, images, seed, an unusual step size and an unusual range of values.

        The same name means that the same was measured.
        """
        attack = self.attack
        usual = attack.name != "pgd" or attack.step_size == _usual_step(attack)
        step = "" if usual else f" step={attack.step_size:.6g}"
        clip = "" if self.clip == PIXELS else f" clip={shown(self.clip)}"
        return f"{attack} eps={attack.eps:.6g} images={self.images} seed={attack.seed}{step}{clip}"

    def as_dict(self) -> dict[str, Any]:
        """Flat and JSON-able."""
        own = asdict(self)
        attack = own.pop("attack")
        attack["eps"] = eps_name(self.attack.eps)
        own["clip"] = shown(self.clip)
        if self.clip == PIXELS:
            del own["clip"]
        return {"attack": attack.pop("name"), **attack, **own}


def _usual_step(attack: Attack) -> float | None:
    return default_step(attack.eps, attack.steps) if isinstance(attack.eps, float) else None


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode inside, the mode from before outside."""
    before = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(before)


def predictions(model: nn.Module, data: ImageSet, *, batch: int = 256, device: torch.device | str = "cpu") -> Tensor:
    """The class that the model gives each image: (N,), int64, on the CPU."""
    parts = []
    with evaluating(model), torch.inference_mode():
        for images, _ in Batches(data, batch, device=device):
            logits = model(images.clone())  # it may change them in place, and they may be the data set's own
            if not torch.isfinite(logits).all():
                raise LingraftError("the model gives NaN or infinite outputs. Train it again, or check its weights.")
            if logits.ndim != 2 or logits.shape[1] < 2:
                raise LingraftError(
                    f"the model gives {tuple(logits.shape)} for {len(images)} images, not two logits or more for each."
                    " Of a single logit: lingraft.logits(model, input_shape)."
                )
            parts.append(logits.argmax(1).cpu())
    return torch.cat(parts)


def correct(model: nn.Module, data: ImageSet, *, batch: int = 256, device: torch.device | str = "cpu") -> Tensor:
    """Which images are classified correctly: (N,), bool, on the CPU."""
    return predictions(model, data, batch=batch, device=device) == data.labels.cpu()


def robust(
    model: nn.Module,
    data: ImageSet,
    candidates: Tensor,
    attack: Attack,
    *,
    batch: int = 256,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
) -> Tensor:
    """Which of the correctly classified images that `candidates` marks withstand `attack`: (N,), bool, on the CPU."""
    if largest(attack.eps) == 0:
        return candidates.clone()
    with evaluating(model):
        if attack.name == "pgd":
            return find_unbroken(
                model,
                data,
                candidates,
                attack.eps,
                steps=attack.steps,
                restarts=attack.restarts,
                step_size=attack.step_size,
                seed=attack.seed,
                batch=batch,
                device=device,
                watch=watch,
            )
        return _unbroken(model, data, candidates, attack, batch, device, watch)


def _unbroken(
    model: nn.Module,
    data: ImageSet,
    candidates: Tensor,
    attack: Attack,
    batch: int,
    device: torch.device | str,
    watch: Watch | None,
) -> Tensor:
    """What `robust` promises, for an attack that makes one image of another."""
    if attack.name == "autoattack" and data.clip != (0.0, 1.0):
        raise LingraftError("AutoAttack stays in [0, 1], which is not the range of these data. Use pgd.")
    unbroken = candidates.clone()
    whole = Ball.around(attack.eps, data.images.shape, data.clip)
    for restart in range(attack.restarts):
        left = unbroken.nonzero().flatten()
        generator = derive_generator(device, attack.seed, attack.name, restart)
        for index in left.split(batch):
            where = index.to(data.images.device)
            images, labels = data.pixels(where).to(device), data.labels[where].to(device)
            ball = whole.at(where)
            if attack.name == "fgsm":
                attacked = fgsm(model, images, labels, ball)
            else:
                attacked = FUNCTIONS[attack.name](model, images.clone(), labels, ball.reach(images), generator)
            _check_inside(attack, ball, images, attacked)
            with torch.no_grad():
                unbroken[index] = (model(attacked).argmax(1) == labels).cpu()
            if watch is not None:
                ended = int(unbroken[index].sum()) + int((~unbroken[index]).sum()) * (attack.restarts - restart)
                watch(ended, int(unbroken.sum()))
    return unbroken


def _check_inside(attack: Attack, ball: Ball, images: Tensor, attacked: Tensor) -> None:
    """A registered attack may be wrong; one that leaves the ball would make a network look weaker than it is."""
    if attacked.shape != images.shape:
        raise LingraftError(
            f"the attack {attack.name!r} makes images of shape {tuple(attacked.shape)} of {tuple(images.shape)}."
        )
    lower, upper = ball.bounds(images)
    outside = float((torch.maximum(lower - attacked, attacked - upper) / images.abs().clamp(min=1)).max())
    if not outside <= _ROUNDING:  # also true for NaN
        raise LingraftError(
            f"the attack {attack.name!r} leaves the ball of radius {attack.eps:g}, or {shown(ball.clip)},"
            f" by {outside:g}. Clip what it makes."
        )


def evaluate(
    model: nn.Module,
    data: ImageSet,
    attack: Attack,
    *,
    images: int | None = None,
    batch: int = 256,
    device: torch.device | str = "cpu",
) -> Evaluation:
    """SA on `data`, RA on its first `images` (default: all), with a progress bar that shows RA so far."""
    if batch < 1:
        raise LingraftError(f"a batch needs at least 1 image, not {batch}.")
    begun = time.perf_counter()
    attacked = data if images is None else data.take(images)
    ball = Ball.around(attack.eps, data.images.shape, data.clip).at(slice(len(attacked)))
    # of a radius for each image, those of the attacked ones
    of_attacked = attack if isinstance(ball.eps, float) else replace(attack, eps=ball.eps)
    right = correct(model, data, batch=batch, device=device)
    candidates = right[: len(attacked)]
    restarts = int(candidates.sum()) * attack.restarts
    with kept_memory(), progress(f"attacking ({attack})", restarts) as advance:

        def watch(ended: int, unbroken: int) -> None:
            advance(ended, f"RA so far {unbroken / len(attacked):.1%}")

        unbroken = robust(model, attacked, candidates, of_attacked, batch=batch, device=device, watch=watch)
    return Evaluation(
        attack=attack,
        sa=_share(right),
        images_sa=len(data),
        ra=_share(unbroken),
        images=len(attacked),
        sa_attacked=_share(candidates),
        seconds=time.perf_counter() - begun,
        clip=data.clip,
    )


def _share(marks: Tensor) -> float:
    return int(marks.sum()) / len(marks)
