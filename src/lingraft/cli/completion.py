"""What the shell offers for names that people type: `lingraft train --model <Tab>`.

The names are written down here because importing what they name takes seconds and a Tab must not; tests keep them true.
"""

from collections.abc import Callable, Sequence

NAMES: dict[str, Sequence[str]] = {
    "data": ("digits", "mnist", "svhn", "cifar10"),
    "fetched": ("mnist", "svhn", "cifar10"),
    "model": (
        "cnn-b",
        "conv-big",
        "resnet-4b",
        "conv-huge",
        "conv-huge-bn",
        "sigmoid-cnn",
        "tanh-cnn",
        "digits-cnn",
        "cnn-b-half",
        "conv-big-half",
        "digits-cnn-half",
    ),
    "training": ("fat", "pgd", "trades", "ibp", "crown-ibp", "mtl-ibp", "sabr", "taps", "staps"),
    "grafting": ("grafting", "zero", "random", "sap", "gap", "hydra", "baseline", "auto"),
    "instability": ("count", "harm", "harm-per-site", "harm-per-significance", "weighted-interval"),
    "attack": ("pgd", "fgsm", "autoattack"),
    "bounds": ("intervals", "crown", "alpha-crown"),
    "significance": ("gap", "gap-before", "adversarial-gap", "sap", "hydra", "random"),
    "ranks": ("network", "site"),
    "split": ("train", "test"),
    "initialization": ("he", "torch", "intervals"),
    "form": ("output", "input", "batchnorm"),
    "verifier": ("marabou", "neuralsat", "alpha-beta-crown"),
    "preset": ("paper", "laptop"),
    "schedule": ("step", "one-cycle", "cosine"),
    "device": ("auto", "cpu", "cuda"),
}


def offer(kind: str) -> Callable[[str], list[str]]:
    """For `autocompletion=` of an option: the names of this kind that begin with what is there."""
    return lambda incomplete: [name for name in NAMES[kind] if name.startswith(incomplete)]
