"""Does it matter which neurons are grafted? Four ways to choose half of them: python examples/which_neurons.py

Nothing is fine-tuned, to see the choice alone. UNR is the share of neurons that are unstable afterwards.
"""

import math

import torch

import lingraft
from lingraft.data import load
from lingraft.grafting import unstable_ratio
from lingraft.model import zoo
from lingraft.training import initialize

EPS = 0.08


def main() -> None:
    train, test = load("digits", "train"), load("digits", "test")
    torch.manual_seed(0)
    net = initialize(zoo.build("digits-cnn"))
    model = lingraft.train(net, train, eps=EPS, epochs=4, batch=64, run="runs/which-neurons")
    scores = lingraft.score(model, train, eps=EPS, score_images=300, bound_images=15)
    by_chance = lingraft.score(model, train, eps=EPS, significance="random", bound_images=1)
    masks = {
        "none": lingraft.select(scores, 0.0),
        "at random": lingraft.select(by_chance, 0.5, gamma=0),
        "least significant": lingraft.select(scores, 0.5, gamma=0),
        "most unstable": lingraft.select(scores, 0.5, gamma=math.inf),
        "both, as in the paper": lingraft.select(scores, 0.5),
    }
    print(f"{'grafted':<24}{'SA':>8}{'RA':>8}{'UNR':>8}")
    for name, mask in masks.items():
        grafted = lingraft.graft(model, mask)
        found = lingraft.evaluate(grafted, test, eps=EPS, steps=10, restarts=1, images=200)
        unstable = unstable_ratio(grafted, test.take(10), EPS)
        print(f"{name:<24}{found.sa:>8.1%}{found.ra:>8.1%}{unstable:>8.1%}")


if __name__ == "__main__":
    main()
