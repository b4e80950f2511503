"""Draws the pictures of how-it-works.md with lingraft itself: python docs/make_figures.py [FOLDER]

A small network with two inputs, so that everything fits on paper: it is trained, half of it is grafted, and each
picture shows what the functions named in its caption give for it.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from torch import Tensor, nn

import lingraft
from lingraft.model.activations import KNOWN
from lingraft.model.sites import grafted_activations
from lingraft.solver.bounds import bound_sites, margin_crown
from lingraft.solver.budget import Budget
from lingraft.solver.collapse import Collapsed, collapse
from lingraft.solver.network import Network

EPS = 0.17
LIGHT, DARK, RED, GREY = "#7aa5cc", "#1f5f99", "#b5442e", "#8a8f98"

#: of the bends of each site
COLORS = (LIGHT, DARK, "#123a5e")


class Plane(nn.Sequential):
    """Points (N, 2, 1, 1) of the unit square → two classes."""

    def __init__(self) -> None:
        hidden = (nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU())
        super().__init__(nn.Flatten(), nn.Linear(2, 20), nn.ReLU(), *hidden, nn.Linear(20, 2))


def points(count: int, seed: int) -> lingraft.ImageSet:
    """Inside or outside of a bent band."""
    x = torch.rand(count, 2, 1, 1, generator=torch.Generator().manual_seed(seed))
    middle = 0.5 + 0.3 * torch.sin(9 * x[:, 0, 0, 0])
    return lingraft.ImageSet(x, (x[:, 1, 0, 0] > middle).long())


def networks() -> dict[str, nn.Module]:
    """The network before and after grafting."""
    data = points(1500, 0)
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        plain = lingraft.train(Plane(), data, eps=0.02, epochs=25, batch=50, run=f"{folder}/plain")
        mask = lingraft.select(lingraft.score(plain, data, eps=EPS), 0.5)
        grafted = lingraft.graft(plain, mask)
        grafted = lingraft.train(
            grafted, data, eps=0.02, epochs=10, batch=50, lr=0.02, line_lr=0.05, run=f"{folder}/grafted"
        )
    return {"before grafting": plain, "half of the neurons grafted": grafted}


def box() -> lingraft.Region:
    """The region of all pictures: a square around a point."""
    return lingraft.Region.ball(torch.tensor([0.2, 0.3]).view(2, 1, 1), EPS)


def collapsed(model: nn.Module) -> Collapsed:
    """The network over the region: margin of class 0 against class 1."""
    network = Network.from_module(model, (2, 1, 1))
    found = bound_sites(network, box(), Budget())
    return collapse(network, found, torch.tensor([[1.0, -1.0]]).double(), torch.zeros(1).double())


def grid(steps: int = 400) -> tuple[Tensor, Tensor, Tensor]:
    """x, y (steps, steps) and the points (steps², 2, 1, 1) of the region."""
    region = box()
    (x0, y0), (x1, y1) = region.lower.flatten().tolist(), region.upper.flatten().tolist()
    x, y = torch.meshgrid(torch.linspace(x0, x1, steps), torch.linspace(y0, y1, steps), indexing="xy")
    return x, y, torch.stack([x, y], -1).view(-1, 2, 1, 1)


def inputs_of_sites(model: nn.Module, where: Tensor) -> list[Tensor]:
    """What every neuron of every site gets, (points, neurons) a site."""
    kept: list[Tensor] = []
    kinds = (nn.ReLU, *{type(site) for site in grafted_activations(model).values()})
    handles = [
        module.register_forward_hook(lambda _m, given, _o: kept.append(given[0].detach()))
        for module in model.modules()
        if isinstance(module, kinds)
    ]
    with torch.no_grad():
        model(where)
    for handle in handles:
        handle.remove()
    return kept


def draw_pieces(models: dict[str, nn.Module]) -> Figure:
    """The lines on which a neuron of the network bends, and where the answer changes."""
    figure = Figure(figsize=(8, 3.9), layout="constrained")
    x, y, where = grid()
    for axes, (title, model) in zip(figure.subplots(1, 2), models.items(), strict=True):
        bends = 0
        masks = [site.mask.flatten() for site in grafted_activations(model).values()]
        for number, z in enumerate(inputs_of_sites(model, where)):
            for neuron in range(z.shape[1]):
                both = bool((z[:, neuron] < 0).any() and (z[:, neuron] > 0).any())
                if both and not (masks and masks[number][neuron]):
                    axes.contour(x, y, z[:, neuron].view_as(x), [0.0], colors=COLORS[number], linewidths=1.4)
                    bends += 1
        with torch.no_grad():
            logits = model(where)
        margin = (logits[:, 0] - logits[:, 1]).view_as(x)
        axes.contourf(x, y, margin, [-100.0, 0.0], colors=[RED], alpha=0.25)
        axes.set_title(f"{title}: {bends} neurons bend here", fontsize=10)
        _square(axes)
    return figure


def draw_lines() -> Figure:
    """ReLU and sigmoid between the lines of their records."""
    figure = Figure(figsize=(8, 2.9), layout="constrained")
    for axes, (kind, low, high) in zip(
        figure.subplots(1, 3), (("relu", -1.0, 2.0), ("relu", -2.0, 1.0), ("sigmoid", -3.0, 5.0)), strict=True
    ):
        lines = KNOWN[kind].lines(torch.tensor([low]).double(), torch.tensor([high]).double())
        z = torch.linspace(low, high, 200).double()
        below = lines.lower_slope * z + lines.lower_intercept
        above = lines.upper_slope * z + lines.upper_intercept
        axes.fill_between(z, below, above, color=LIGHT, alpha=0.35, linewidth=0)
        axes.plot(z, torch.relu(z) if kind == "relu" else torch.sigmoid(z), color=DARK, linewidth=2)
        axes.set_title(f"{kind} on [{low:g}, {high:g}]", fontsize=10)
        axes.set_xticks([low, 0, high])
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_matrices(models: dict[str, nn.Module]) -> Figure:
    """P, Q and r of the collapsed network: its rows are taps, its columns the inputs and the taps before."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for axes, (title, model) in zip(figure.subplots(1, 2), models.items(), strict=True):
        net = collapsed(model)
        rows = torch.cat(
            [
                torch.cat([taps.P.dense(), taps.Q.dense(), torch.zeros(len(taps.r), net.count - taps.first)], 1)
                for taps in net.taps
            ]
            + [torch.cat([net.p.t(), net.q.t()], 1)]
        )
        axes.imshow(rows / rows.abs().amax(1, keepdim=True), cmap="RdBu", vmin=-1, vmax=1)
        axes.axvline(1.5, color=GREY, linewidth=1)
        axes.axhline(net.count - 0.5, color=GREY, linewidth=1)
        axes.set_title(f"{title}: {net.count} taps", fontsize=10)
        axes.set_xlabel("inputs x | taps before", fontsize=9)
        axes.set_ylabel("taps, then the margin", fontsize=9)
        axes.set_xticks([])
        axes.set_yticks([])
    return figure


def draw_stages(models: dict[str, nn.Module]) -> Figure:
    """Lower bounds of the margin by each stage, and the lowest margin on a grid."""
    figure = Figure(figsize=(8, 3), layout="constrained")
    _, _, where = grid()
    image = ((box().lower + box().upper) / 2)[None]
    for axes, (title, model) in zip(figure.subplots(1, 2), models.items(), strict=True):
        network = Network.from_module(model, (2, 1, 1))
        spec, offset = torch.tensor([[1.0, -1.0]]).double(), torch.zeros(1).double()
        low, high = bound_sites(network, box(), Budget(), "intervals").logits
        crown = float(margin_crown(network, bound_sites(network, box(), Budget()), spec, offset))
        (result,) = lingraft.verify(model, image, [0], eps=EPS, timeout=30, workers=0)
        with torch.no_grad():
            logits = model(where)
        lowest = float((logits[:, 0] - logits[:, 1]).min())
        bars = {
            "intervals": float(low[0] - high[1]),
            "CROWN": crown,
            **({"α-CROWN": result.alpha[0]} if result.alpha else {}),
            "lowest on a grid": lowest,
        }
        drawn = axes.barh(list(bars), list(bars.values()), color=[LIGHT] * (len(bars) - 1) + [DARK])
        axes.bar_label(drawn, [f"{value:.2f}" for value in bars.values()], padding=3, fontsize=9)
        axes.axvline(0, color=RED, linewidth=1)
        axes.invert_yaxis()
        axes.set_xscale("symlog", linthresh=0.1)
        axes.margins(x=0.3)
        axes.set_title(f"{title}: {result.verdict}\nby {result.stage}, {result.domains} domains", fontsize=10)
        axes.spines[["top", "right", "left"]].set_visible(False)
    return figure


def _square(axes: Any) -> None:
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])


def main(folder: Path) -> list[Path]:
    """Draw everything into `folder`; gives the files."""
    models = networks()
    drawn = {
        "pieces": draw_pieces(models),
        "lines": draw_lines(),
        "collapse": draw_matrices(models),
        "stages": draw_stages(models),
    }
    paths = []
    for name, figure in drawn.items():
        FigureCanvasSVG(figure)
        paths.append(folder / f"{name}.svg")
        figure.savefig(paths[-1], metadata={"Date": None})
    return paths


if __name__ == "__main__":
    torch.set_num_threads(1)
    for path in main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("images"))):
        print(path)
