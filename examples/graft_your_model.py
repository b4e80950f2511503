"""A model of your own, from training to a proof and a report: python examples/graft_your_model.py

Needs nothing to download. Writes to runs/example and runs/example-grafted, and report.html.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lingraft

EPS = 0.06


class Net(nn.Module):
    """Two convolutions with a shortcut, then two linear layers; any module that torch.fx can trace will do."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, stride=2, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.hidden = nn.Linear(128, 32)
        self.last = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        x = torch.relu(x + self.second(x)).flatten(1)
        return self.last(torch.relu(self.hidden(x)))


def main() -> None:
    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None]  # pixels from 0 to 1
    labels = torch.tensor(digits.target)
    train = DataLoader(TensorDataset(images[:1400], labels[:1400]), batch_size=100)
    test = (images[1400:], labels[1400:])

    torch.manual_seed(0)
    model = lingraft.train(Net(), train, eps=EPS, epochs=6, batch=50, run="runs/example")
    scores = lingraft.score(model, train, eps=EPS, score_images=300, bound_images=20)
    grafted = lingraft.graft(model, lingraft.select(scores, ratio=0.6))
    grafted = lingraft.train(
        grafted, train, eps=EPS, epochs=3, batch=50, lr=0.005, line_lr=0.05,
        run="runs/example-grafted", parent="runs/example",
    )  # fmt: skip
    for net, run in ((model, "runs/example"), (grafted, "runs/example-grafted")):
        attacked = lingraft.evaluate(net, test, eps=EPS, images=100, steps=10, restarts=2, run=run)
        results = lingraft.verify(net, test[0][:8], test[1][:8], eps=EPS, timeout=2, workers=0, run=run)
        verified = sum(result.verdict == "verified" for result in results)
        unstable = [sum(result.unstable.values()) for result in results if result.unstable]
        mean = sum(unstable) / max(1, len(unstable))
        print(
            f"{run:<22}SA {attacked.sa:.1%}   RA {attacked.ra:.1%}   verified {verified} of {len(results)}"
            f"   unstable neurons {mean:.0f} of {results[0].neurons}"
        )
    print(lingraft.write_report(["runs/example", "runs/example-grafted"], "report.html"))


if __name__ == "__main__":
    main()
