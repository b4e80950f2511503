"""Deciding one instance: a network in ONNX and a property in VNN-LIB, with the answers of VNN-COMP."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from lingraft.formats.answer import Answer, Counterexample, Placed
from lingraft.formats.onnx_network import FlatNetwork, OnnxNetwork
from lingraft.formats.runtime import points_of
from lingraft.formats.vnnlib import Box, Conjunction, Property, read_vnnlib
from lingraft.pool.problems import decide
from lingraft.progress import Advance
from lingraft.solver.boxes import FEW_INPUTS, Maxima
from lingraft.solver.budget import Budget, usable_memory
from lingraft.solver.many_boxes import ManyBoxes
from lingraft.solver.network import Network
from lingraft.solver.nodes import Dense
from lingraft.solver.region import Region
from lingraft.solver.request import Limits
from lingraft.solver.verifier import Problem, Result, Verifier

#: (box, its result, the network that was verified)
Proven = Callable[[Box, Result, Network], None]

#: Float32 may change a margin by this share of its terms, and by this many times what it changes at a few points of
#: a box: programs add in different orders.
SHARE, SPREAD = 1e-5, 32.0

#: With less than this left (seconds), an undecided box is not tried again.
SHORTEST_TRY = 0.05

#: Of boxes that are proven together, about so many are compared with onnxruntime.
COMPARED = 16


@dataclass(frozen=True)
class Instance:
    """A network and a property of it.

    `placed` are the tensors that a property in VNN-LIB 2.0 declares, and `copies` says which of the network's inputs is
    each of the declared ones, where several networks are joined.
    """

    network: FlatNetwork
    property: Property
    placed: tuple[Placed, ...] = ()
    copies: np.ndarray | None = None

    @classmethod
    def read(cls, network: OnnxNetwork, vnnlib: str | Path) -> "Instance":
        """With the property of a file, which must fit the network."""
        return cls(network, read_vnnlib(vnnlib, network.inputs, network.outputs, network.names))

    @cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds (boxes, inputs) of all boxes."""
        boxes, shape = self.property.boxes, (len(self.property.boxes), self.network.inputs)
        lower, upper = np.array([box.lower for box in boxes]), np.array([box.upper for box in boxes])
        return lower.reshape(shape), upper.reshape(shape)

    def replay(self, x: np.ndarray) -> Counterexample | None:
        """`x` (flat) as a counterexample, if it lies in a box exactly and is unsafe when onnxruntime runs it.

        The numbers compared with the bounds are float64: where no float32 number lies between two bounds, only such
        ones are in the box. onnxruntime takes them rounded to float32.
        """
        x = np.asarray(x, np.float64)
        lower, upper = self._ends
        near = np.flatnonzero(((x >= lower) & (x <= upper)).all(1))
        boxes = [box for box in (self.property.boxes[i] for i in near) if box.contains(x)]
        if not boxes:
            return None
        y = self.network.run(x)
        if not any(unsafe.holds(y.astype(np.float64)) for box in boxes for unsafe in box.unsafe):
            return None
        if self.property.with_inputs:
            y = y[: len(y) - len(x)]
        return Counterexample(x if self.copies is None else x[self.copies], y, self.placed)

    def answer(
        self,
        limits: Limits,
        started: float | None = None,
        advance: Advance = lambda *_: None,
        proven: Proven = lambda *_: None,
    ) -> Answer:
        """The answer within `limits.timeout` seconds from `started` (time.monotonic(); default: now).

        The boxes share the time: each gets an equal part of what is left, and what the quick ones do not use goes to
        the undecided ones in another round. `advance` is called for each box that is proven, and so is `proven`, with
        what is known about it.
        """
        started = time.monotonic() if started is None else started
        budget = Budget(limits.timeout - (time.monotonic() - started), usable_memory(limits.memory))
        answer = Answer("unsat")
        open_ = list(self.property.boxes)
        if len(open_) > 1 and not limits.prove:
            share = 0.25 if len(open_) < budget.left else 0.9  # most of it if there is not a second for each
            left = self._without_easy(open_, limits, budget.part(share * budget.left))
            advance(len(open_) - len(left))
            open_, answer.stage = left, "boxes"
        while open_ and answer.word != "sat":
            undecided: list[Box] = []
            for number, box in enumerate(open_):
                if budget.left <= 0:
                    undecided += open_[number:]
                    break
                share = budget.left / (len(open_) - number)
                result, point, network = self._try(box, limits, budget, share)
                answer.stage, answer.domains = result.stage, answer.domains + result.domains
                if point is not None:
                    answer.word, answer.reason, answer.counterexample = "sat", None, point
                    break
                if result.verdict == "verified" and network is not None:
                    proven(box, result, network)
                    advance()
                elif result.reason == "time":
                    undecided.append(box)
                else:
                    answer.word, answer.reason = "unknown", result.error or result.reason
            open_ = undecided if budget.left >= SHORTEST_TRY else []
            if answer.word == "unsat" and undecided and not open_:
                answer.word, answer.reason = "timeout", "time"
        answer.seconds = time.monotonic() - started
        return answer

    def _without_easy(self, boxes: list[Box], limits: Limits, budget: Budget) -> list[Box]:
        """The boxes but those that are proven together at once; all, where more than few inputs have a width."""
        lower, upper = (
            torch.from_numpy(np.stack([getattr(box, end) for box in boxes])).double() for end in ("lower", "upper")
        )
        if int((upper > lower).sum(1).max()) > FEW_INPUTS:
            return boxes
        verifier = self.network.verifier(limits.double)
        inner = [
            verifier.network.inside(end.view(-1, *self.network.input_shape).to(self.network.device)).flatten(1)
            for end in (lower, upper)
        ]
        count, longest = max(len(box.unsafe) for box in boxes), max(inequalities(box.unsafe)[2] for box in boxes)
        each = [inequalities([box.unsafe[min(i, len(box.unsafe) - 1)] for i in range(count)], longest) for box in boxes]
        spec, index = np.unique(np.concatenate([rows for rows, _, _ in each]), axis=0, return_inverse=True)
        size = (len(boxes), count, longest)
        parts = spec, index.reshape(size), np.concatenate([shifts for _, shifts, _ in each]).reshape(size)
        many = ManyBoxes(*inner, *(torch.from_numpy(part).to(self.network.device) for part in parts))
        easy = many.easy(verifier.network, verifier.sizes, budget).nonzero().flatten().tolist()
        # that the network is what onnxruntime computes is seen at some of them
        for i in easy[:: max(1, len(easy) // COMPARED)]:
            ends = torch.stack(_representable(boxes[i]).narrowed())
            if self._difference(boxes[i], *margins(self.network, boxes[i].unsafe, limits.double), ends) is not None:
                return boxes
        done = set(easy)
        return [box for i, box in enumerate(boxes) if i not in done]

    def _try(
        self, box: Box, limits: Limits, budget: Budget, seconds: float
    ) -> tuple[Result, Counterexample | None, Network | None]:
        """How one box ended within `seconds` seconds, the confirmed counterexample if any, and the network verified."""
        begun = time.monotonic()
        region = _representable(box)
        low, high = region.narrowed()
        middle = torch.minimum(torch.maximum(((region.lower + region.upper) / 2).float(), low), high)
        point = self._confirmed(box, middle)
        if point is not None:
            return Result("falsified", "forward"), point, None
        verifier, spec, offset = margins(self.network, box.unsafe, limits.double, limits.prove)
        problem = self._problem(box, region, middle, spec, offset)
        problem.maxima = maxima(verifier.network, box.unsafe, problem.region)
        left = seconds - (time.monotonic() - begun)
        result = decide(verifier, problem, left, budget.memory, limits.seed, limits.prove)
        if result.verdict == "verified":
            difference = self._difference(box, verifier, spec, offset, torch.stack([low, high]))
            if difference is not None:
                result.verdict, result.reason, result.error = "unknown", "numerical", difference
        if result.verdict == "falsified" and result.witness is not None:
            point = self._confirmed(box, result.witness)
        return result, point, verifier.network

    def _difference(self, box: Box, verifier: Verifier, spec: Tensor, offset: Tensor, ends: Tensor) -> str | None:
        """What is wrong where the margins that were proven are not onnxruntime's, at points of the box; else None.

        `ends` (2, n) are its float32 bounds. Both compute the same up to what rounding does in float32: the share that
        it has of the terms of a margin, and what it does to our own network at these points.
        """
        low, high = ends
        points = points_of(low, torch.maximum(low, high))
        outputs = torch.from_numpy(np.stack([self.network.run(point.numpy()) for point in points])).double()
        rows, shifts, longest = (torch.as_tensor(part) for part in inequalities(box.unsafe))
        theirs = (outputs @ rows.T + shifts).unflatten(1, (-1, int(longest))).amax(2)
        terms = (outputs.abs() @ rows.abs().T + shifts.abs()).unflatten(1, (-1, int(longest))).amax(2)
        inputs = points.view(-1, *self.network.input_shape).to(self.network.device)
        with torch.no_grad():
            found = verifier.network.forward(inputs.double()), verifier.single.forward(inputs).double()
        if verifier.network is self.network.before_softmax:
            found = found[0].softmax(1), found[1].softmax(1)
        ours, rounded = ((y.cpu() @ spec.T + offset) for y in found)
        allowed = SHARE * terms.amax(0) + SPREAD * (ours - rounded).abs().amax(0)
        if bool(torch.isfinite(allowed).all() and ((ours - theirs).abs() <= allowed).all()):
            return None
        return (
            f"in a box the network read differs from onnxruntime's by {float((ours - theirs).abs().max()):.1e},"
            " more than rounding explains. Please report the file."
        )

    def _problem(self, box: Box, region: Region, image: Tensor, spec: Tensor, offset: Tensor) -> Problem:
        """Witnesses are those that onnxruntime confirms, equality included where the property includes it."""
        shape, device = self.network.input_shape, self.network.device
        shaped = Region(*(bound.view(shape).to(device) for bound in (region.lower, region.upper)))
        sides = image.view(shape).to(device), shaped, spec.to(device), offset.to(device)
        return Problem(*sides, lambda witness: self._confirmed(box, witness) is not None)

    def _confirmed(self, box: Box, witness: Tensor) -> Counterexample | None:
        """A witness from the region of a box, moved into the box by less than float32 tells apart."""
        single = witness.detach().cpu().float().numpy().ravel()
        if box.open_ends is not None:  # one step away from bounds that are not allowed
            for side, (bound, beyond) in enumerate(((box.lower, np.inf), (box.upper, -np.inf))):
                at_end = box.open_ends[side] & (single == bound)
                single = np.where(at_end, np.nextafter(single, np.float32(beyond)), single)
        x = np.clip(single.astype(np.float64), box.lower, box.upper)
        return self.replay(x) if bool((x.astype(np.float32) == single).all()) else None


def margins(
    network: FlatNetwork, unsafe: list[Conjunction], double: bool, prove: bool = False
) -> tuple[Verifier, Tensor, Tensor]:
    """A network, C and d such that an output is in none of the sets `unsafe` where C·network(x) + d > 0 in each row.

    An output is in a set if all its inequalities c·y + d ≤ 0 hold, so it is not if the largest c·y + d is positive. If
    each set has one inequality these are the rows; otherwise the maxima are appended to the network, which the verifier
    takes as max(a, b) = b + relu(a − b), exactly. A last softmax does not change which of two outputs is larger: it is
    left out where nothing else is asked, but for a proof, which is about the outputs.
    """
    rows, shifts, longest = inequalities(unsafe)
    spec, offset = torch.from_numpy(rows), torch.from_numpy(shifts)
    if longest == 1:
        compared = not shifts.any() and not rows.sum(1).any() and bool(((rows != 0).sum(1) == 2).all())
        before = network.before_softmax if compared and not prove else None
        return network.verifier(double) if before is None else Verifier(before, double), spec, offset
    layer = nn.Linear(network.outputs, len(rows), dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(spec)
        layer.bias.copy_(offset)
    maximum = (nn.Unflatten(1, (len(unsafe), 1, longest)), nn.MaxPool2d((1, longest)), nn.Flatten())
    count = len(unsafe)
    verifier = network.verifier(double, layer, *maximum)
    return verifier, torch.eye(count, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)


def maxima(network: Network, unsafe: list[Conjunction], region: Region) -> Maxima | None:
    """Where the network of `margins` has the values that its outputs are the largest of; None if that is not seen."""
    rows, _, longest = inequalities(unsafe)
    if longest == 1:
        return None
    with torch.no_grad():
        values = network.values(torch.stack([region.lower, region.upper, (region.lower + region.upper) / 2]).double())
    for i in range(len(network.nodes) - 1, -1, -1):
        node = network.nodes[i]
        if (
            isinstance(node, Dense)
            and node.weight.shape == rows.shape
            and bool((node.weight.cpu().numpy() == rows).all())
        ):
            largest = values[i].unflatten(1, (-1, longest)).amax(2)
            if torch.allclose(largest, values[-1]):  # and no other layer that happens to have these weights
                return Maxima(i, torch.arange(len(rows)).view(-1, longest))
    return None


def inequalities(unsafe: list[Conjunction], least: int = 1) -> tuple[np.ndarray, np.ndarray, int]:
    """Coefficients and constants of all inequalities, as many (the last result, at least `least`) for each set."""
    # a set without any has every output: −1 ≤ 0
    unsafe = [part if len(part.constants) else _everything(part.coefficients.shape[1]) for part in unsafe]
    sizes = [len(part.constants) for part in unsafe]
    longest = max(least, *sizes)
    # sets of fewer inequalities repeat their last one, which changes no maximum
    index = [np.minimum(np.arange(longest), size - 1) for size in sizes]
    rows = np.concatenate([part.coefficients[i] for part, i in zip(unsafe, index, strict=True)])
    shifts = np.concatenate([part.constants[i] for part, i in zip(unsafe, index, strict=True)])
    return rows, shifts, longest


def _everything(outputs: int) -> Conjunction:
    """The set of all outputs, written with one inequality."""
    return Conjunction(np.zeros((1, outputs)), np.array([-1.0]))


def _representable(box: Box) -> Region:
    """The box (flat), widened to the nearest float32 number where it holds none, so that inputs can be tried in it.

    What is proven of it holds in the box; what is found in it is moved back into the box.
    """
    region = Region(torch.from_numpy(box.lower), torch.from_numpy(box.upper))
    low, high = region.narrowed()
    nearest = region.lower.float().double()
    lower = torch.where(low > high, torch.minimum(region.lower, nearest), region.lower)
    upper = torch.where(low > high, torch.maximum(region.upper, nearest), region.upper)
    return Region(lower, upper)
