"""What a mask will do, to be read before it is done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from lingraft.errors import LingraftError
from lingraft.model.sites import Site
from lingraft.names import lookup


@dataclass(frozen=True)
class GraftingPlan:
    """Neurons a site and how many of them are grafted; `print` it, or give it to rich."""

    sites: Sequence[Site]
    #: grafted neurons of each of them
    counts: Sequence[int]

    @property
    def neurons(self) -> int:
        """Neurons of the network."""
        return sum(site.neurons for site in self.sites)

    @property
    def grafted(self) -> int:
        """Grafted neurons of the network."""
        return sum(self.counts)

    def _rows(self) -> list[tuple[str, str, str, str, str, str]]:
        rows = [
            (
                site.name,
                site.kind,
                "×".join(map(str, site.shape)),
                f"{site.neurons:,}",
                f"{count:,}",
                f"{count / site.neurons:.1%}",
            )
            for site, count in zip(self.sites, self.counts, strict=True)
        ]
        return [*rows, ("all", "", "", f"{self.neurons:,}", f"{self.grafted:,}", f"{self.grafted / self.neurons:.1%}")]

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "neurons": self.neurons,
            "grafted": self.grafted,
            "sites": [
                {"name": site.name, "shape": list(site.shape), "neurons": site.neurons, "grafted": count}
                for site, count in zip(self.sites, self.counts, strict=True)
            ],
        }

    def __str__(self) -> str:
        rows = [("site", "activation", "shape", "neurons", "grafted", "share"), *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(6)]
        return "\n".join(
            "  ".join(
                text.ljust(width) if column < 3 else text.rjust(width)
                for column, (text, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        )

    def __rich__(self) -> Table:
        table = Table("site", "activation", "shape", title="What is grafted")
        for column in ("neurons", "grafted", "share"):
            table.add_column(column, justify="right")
        *rows, total = self._rows()
        for row in rows:
            table.add_row(*row)
        table.add_section()
        table.add_row(*total)
        return table


def plan(sites: Sequence[Site], mask: Mapping[str, Tensor]) -> GraftingPlan:
    """The plan of grafting `mask` into a model with these sites; sites without a mask have nothing grafted."""
    known = {site.name: site for site in sites}
    for name, chosen in mask.items():
        site = lookup("site", name, known)
        if chosen.dtype != torch.bool or tuple(chosen.shape) != site.shape:
            raise LingraftError(
                f"the mask of site {name!r} is {chosen.dtype} of shape {tuple(chosen.shape)};"
                f" it must be torch.bool of shape {site.shape}."
            )
    return GraftingPlan(sites, [int(mask[site.name].sum()) if site.name in mask else 0 for site in sites])
