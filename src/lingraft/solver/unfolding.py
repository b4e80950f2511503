"""The network over one region, unfolded from the image: affine functions of its values, and the rows of its taps.

They are made when bounds ask for them, and kept no longer than they are needed. Where they would have too many weights,
or far more products than rows passing back, there are none, and `crown.py` is used instead.
"""

import torch
from torch import Tensor

from lingraft.model.activations import Lines
from lingraft.solver.affine import Affine, TooLarge, of_image, products, settled, spans, through, through_site
from lingraft.solver.budget import Budget
from lingraft.solver.network import Network, device_of
from lingraft.solver.nodes import Input, Site
from lingraft.solver.substitution import TapRows, substituted, substitutions, tap_rows

#: Products that are allowed in any case, about a tenth of a second, and for each of the rows that would pass back
#: instead: theirs are in small pieces with more work around them, and the rows of taps are wanted afterwards, too.
FREE, PER_PRODUCT = 1e9, 3.0


#: Taps of a site (T,), and how far each input moves them (T, n).
Moved = tuple[Tensor, Tensor]


class Unfolding:
    """Over the box center ± radius (inner shape), with the bounds that are found for the sites on the way.

    `share` is what a sum may lose to rounding, of the sum of the sizes of what is added up. Only values that are
    `visible` are computed, if that is given for every node; others may be left without their weights.
    """

    def __init__(
        self,
        network: Network,
        center: Tensor,
        radius: Tensor,
        share: float,
        budget: Budget,
        visible: list[Tensor] | None = None,
    ):
        self.visible = visible
        self.network, self.center, self.share, self.budget = network, center, share, budget
        self.radius = radius.flatten()
        self.possible = device_of(network).type == "cpu"
        #: rows of the taps of every site that was reached
        self.taps: dict[int, TapRows] = {}
        #: middle and half of what each column can be
        self._middle, self._half = torch.zeros_like(self.radius), self.radius
        self._values: dict[int, Affine] = {}
        self._sites: dict[int, tuple[Lines, Tensor, Tensor, Tensor]] = {}
        self._next = 0
        self._allowed, self._spent = FREE, 0.0

    def allow(self, row_products: float) -> None:
        """There are rows to bound that would take so many products on their way back."""
        self._allowed += PER_PRODUCT * row_products

    def bounded(self, i: int, lines: Lines, unstable: Tensor, lower: Tensor, upper: Tensor) -> None:
        """The lines of site `i`, its taps, and the bounds on which the lines are used, each of its shape."""
        low = torch.minimum(*(lines.lower_slope * end + lines.lower_intercept for end in (lower, upper)))
        high = torch.maximum(*(lines.upper_slope * end + lines.upper_intercept for end in (lower, upper)))
        self._sites[i] = lines, unstable.flatten().nonzero().flatten(), low.reshape(-1), high.reshape(-1)

    def spans(self, i: int) -> tuple[Tensor, Tensor] | None:
        """Bounds of all values of linear node `i`, in which every tap can be anything between its lines.

        CROWN, which uses the same lines, is at least as good wherever the bounds of taps are its own.
        """
        x = self._reach(i)
        if x is None:
            return None
        center, radius = spans(x, self._middle, self._half)
        radius = radius + self._loss(x)
        return (center - radius)[0], (center + radius)[0]

    def crown(self, i: int, index: Tensor, low: Tensor, high: Tensor, bend: bool) -> tuple[Tensor, Tensor] | None:
        """Bounds (R,) of some values of linear node `i`, in order, in which taps are replaced by their lines.

        `low` and `high` (R,) are what is known of them. Where it only matters if they can be 0, as they `bend` there,
        those that the side nearer to 0 decides keep what is known of the other.
        """
        x, taps = self._reach(i), [rows for rows in self.taps.values() if len(rows.index)]
        if x is None:
            return None
        costs = substitutions(x, index, taps, len(self.radius))
        if not self._pay(2 * min(costs)):
            return None
        whole, loss = x.places == 1 or costs[0] <= costs[1], self._loss(x).reshape(-1)[index]

        def below(some: Tensor, sign: Tensor | None) -> Tensor:
            return substituted(x, index[some], sign, taps, self.radius, whole, self.budget) - loss[some]

        every = torch.arange(len(index))
        if whole or not bend:  # few rows over all columns cost as much as many
            low, high = below(every, None)
            return low, -high
        sign = torch.where(low + high < 0, -1.0, 1.0).double()
        near, far = below(every, sign), torch.where(sign > 0, -high, low)
        left = (near < 0).nonzero().flatten()
        far[left] = below(left, -sign[left])
        return torch.where(sign > 0, near, far), -torch.where(sign > 0, far, near)

    @property
    def relaxes(self) -> bool:
        """Whether there are taps yet: if not, `spans` has nothing to gain from lines."""
        return len(self._half) > len(self.radius)

    def rows(self, i: int) -> TapRows | None:
        """Rows of the taps of site `i`, whose bounds are known."""
        if i not in self.taps:
            self._reach(i)
        return self.taps.get(i)

    def moved(self) -> dict[int, Moved]:
        """About how far each input moves the taps of every site, also through the taps before them; {} if unknown."""
        if self.network.sites and self.rows(self.network.sites[-1]) is None:
            return {}
        wide, found = self.radius.nonzero().flatten(), {}
        columns = self.radius.new_zeros(len(self.radius), len(wide))
        columns[wide, torch.arange(len(wide))] = self.radius[wide]
        for i, rows in self.taps.items():
            taps = rows.carried(columns[: rows.first])
            found[i] = rows.index, self.radius.new_zeros(len(taps), len(self.radius)).index_copy_(1, wide, taps)
            steepest = torch.maximum(rows.lines.lower_slope.abs(), rows.lines.upper_slope.abs())
            columns = torch.cat([columns, taps * steepest[:, None]])
        return found

    def _loss(self, x: Affine) -> Tensor:
        return x.error + self.share * x.mass

    def _pay(self, cost: float) -> bool:
        self._spent += cost
        self.possible = self.possible and self._spent <= self._allowed
        if not self.possible:
            self._values.clear()
        return self.possible

    def _reach(self, i: int) -> Affine | None:
        """The values of node `i`, in order; of the last site there are none, only rows."""
        try:
            while self.possible and self._next <= i:
                self.budget.check_time()
                self._step(self._next)
                self._next += 1
            if self.possible and i in self._values:
                self._values[i] = settled(self._values[i], self.network.nodes[i].shape, self.budget)
                return self._values[i]
        except TooLarge:
            self.possible = False
            self._values.clear()
        return None

    def _step(self, i: int) -> None:
        node = self.network.nodes[i]
        inputs = [self._values[j] for j in node.inputs]
        if isinstance(node, Input):
            self._values[i] = of_image(self.center, self.radius.view(self.center.shape))
        elif isinstance(node, Site):
            self._site(i, settled(inputs[0], node.shape, self.budget))
        elif self._pay(products(node, inputs)):
            shapes = [self.network.nodes[j].shape for j in node.inputs]
            seen = None if self.visible is None else self.visible[i]
            self._values[i] = through(node, inputs, shapes, seen, self.budget)
        if 2 * 8 * sum(x.weights.numel() for x in self._values.values()) > self.budget.memory:
            raise TooLarge
        for j in set(node.inputs):
            if not any(j in later.inputs for later in self.network.nodes[i + 1 :]):
                self._values.pop(j, None)

    def _site(self, i: int, x: Affine) -> None:
        lines, index, low, high = self._sites.pop(i)
        first = len(self._half)
        self.taps[i] = tap_rows(x, index, lines, self._loss(x), first)
        if i == self.network.sites[-1]:
            return
        low, high = low[index], high[index]
        middle = (low + high) / 2
        self._middle = torch.cat([self._middle, middle])
        self._half = torch.cat([self._half, torch.maximum(high - middle, middle - low)])
        linear = torch.ones_like(lines.lower_slope).view(-1).index_fill_(0, index, 0.0).view(lines.lower_slope.shape)
        slope, intercept = lines.lower_slope * linear, lines.lower_intercept * linear
        self._values[i] = through_site(x, slope, intercept, index, torch.maximum(low.abs(), high.abs()), first)
