"""Digests change with everything that a verdict depends on, and with nothing else."""

from dataclasses import fields, replace
from typing import Any

import pytest
import random_networks as nets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from softsign import SOFTSIGN
from torch import Tensor, nn

from lingraft.model.activations import KNOWN, Activation
from lingraft.model.activations.sigmoid import SIGMOID, TANH
from lingraft.solver.digest import digest_network, digest_question
from lingraft.solver.network import Network
from lingraft.solver.nodes import Convolution, Dense, Gather, Input, Node, Scale, Site, Sum
from lingraft.solver.region import Region
from lingraft.solver.verifier import Problem


def _nodes() -> list[Node]:
    """One node of every kind; what they compute does not matter here."""
    ones, two = torch.ones(2).double(), torch.eye(2).double()
    return [
        Input("image", (1, 2, 1), []),
        Convolution("conv", (1, 2, 1), [0], (1, 2, 1), ones[:1, None], ones[:1], (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
        Gather("flat", (2,), [1], (1, 2, 1), torch.tensor([0, 1])),
        Dense("dense", (2,), [2], two, ones),
        Scale("scale", (2,), [3], ones, ones),
        Site("relu", (2,), [4], "relu", ones.bool(), ones, ones),
        Sum("sum", (2,), [5, 3], [1.0, -1.0]),
    ]


def _changed(value: Any) -> Any:
    """Another value of the same kind, as close as there is."""
    if isinstance(value, Tensor):
        other = value.clone().flatten()
        other[-1] = ~other[-1] if other.dtype == torch.bool else other[-1] + 1
        if other.is_floating_point():
            other[-1] = torch.nextafter(value.flatten()[-1], torch.tensor(9.0).double())
        return other.view(value.shape)
    if isinstance(value, list | tuple):
        return type(value)([*value[:-1], _changed(value[-1])]) if value else [7]
    return {bool: lambda v: not v, str: lambda v: "tanh", int: lambda v: v + 1, float: lambda v: v * (1 + 2**-52)}[
        type(value)
    ](value)


def test_every_field_of_every_node_counts_but_names_and_what_saves_work() -> None:
    nodes = _nodes()
    seen = {digest_network(nodes)}
    for i, node in enumerate(nodes):
        for field in fields(node):
            other = replace(node, **{field.name: _changed(getattr(node, field.name))})
            digest = digest_network([*nodes[:i], other, *nodes[i + 1 :]])
            assert (digest in seen) == (field.name in ("name", "gain", "offset", "known")), (node.name, field.name)
            seen.add(digest)
    assert digest_network(nodes[:-1]) not in seen


def test_digests_are_those_of_verdicts_that_were_kept() -> None:
    """If this changes, every verdict that anybody kept is found again: raise `EDITION` if that is meant."""
    assert digest_network(_nodes()) == "1d0819b13316c63bf0a82fca2e4c6e9b45d061029abefaa02f980f15f5a844a1"


def test_a_registered_activation_counts_with_what_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code may be another one under the same name in the next run."""
    nodes = [replace(node, kind="softsign") if isinstance(node, Site) else node for node in _nodes()]

    def digest(record: Activation) -> str:
        monkeypatch.setitem(KNOWN, "softsign", record)
        return digest_network(nodes)

    def wider(lower: Tensor, upper: Tensor) -> Any:
        lines = SOFTSIGN.lines(lower, upper)
        return lines._replace(lower_intercept=lines.lower_intercept - 1e-9)

    def chosen(lower: Tensor, upper: Tensor, place: Tensor) -> Any:
        return SOFTSIGN.lines(lower, upper)

    def wider_ones(lower: Tensor, upper: Tensor, place: Tensor) -> Any:
        return wider(lower, upper)

    versions = [
        SOFTSIGN,
        replace(SOFTSIGN, lines_at=chosen),
        replace(SOFTSIGN, lines_at=wider_ones),
        replace(SOFTSIGN, value=lambda z: -SOFTSIGN.value(z)),
        replace(SOFTSIGN, value=lambda z: SOFTSIGN.value(z) * (1 + 2**-50)),
        replace(SOFTSIGN, value=lambda z: torch.where(z > 1e8, 1.0, SOFTSIGN.value(z))),
        replace(SOFTSIGN, lines=wider),
        replace(SOFTSIGN, interval=lambda lower, upper: (-torch.ones_like(lower), torch.ones_like(upper))),
        replace(SOFTSIGN, size=lambda size: 2.0),
        replace(SIGMOID, name="softsign"),  # all of its functions are lingraft's or torch's
        replace(TANH, name="softsign"),
    ]
    digests = [digest(record) for record in versions]
    assert len(set(digests)) == len(digests)
    assert digest(replace(SOFTSIGN, gap=lambda lower, upper: 0 * lower)) == digests[0]  # nothing proven depends on it
    assert digest(SOFTSIGN) == digests[0]


def test_shapes_and_values_are_not_confused() -> None:
    """The same numbers in other shapes, and the same bytes cut elsewhere, are something else."""
    numbers = torch.arange(4).double()
    dense = [Dense("d", (2,), [0], numbers.view(*shape), numbers[:n]) for shape, n in (((2, 2), 2), ((1, 4), 2))]
    moved = [Scale("s", (2,), [0], numbers[:n], numbers[n:]) for n in (1, 2, 3)]
    listed = [Sum("s", (2,), inputs, signs) for inputs, signs in (([1, 2], [3.0]), ([1], [2.0, 3.0]), ([12], [3.0]))]
    every = [digest_network([node]) for node in (*dense, *moved, *listed)]
    assert len(set(every)) == len(every)


def test_a_kind_of_node_with_something_new_in_it_has_no_digest() -> None:
    with pytest.raises(AssertionError, match="no digest"):
        digest_network([Sum("s", (2,), [0], signs={1.0})])  # type: ignore[arg-type]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["relu", "leaky", "tanh"]), st.booleans())
def test_the_same_network_has_the_same_digest(seed: int, kind: str, graft: bool) -> None:
    """Whenever it is converted; another weight is another network."""
    model, shape = nets.conv(seed, None, kind)
    model = nets.grafted(model, shape, seed) if graft else model
    first = digest_network(Network.from_module(model, shape).nodes)
    assert digest_network(Network.from_module(model, shape).nodes) == first
    weight = next(module.weight for module in model.modules() if isinstance(module, nn.Linear))
    weight.data[-1] *= 1 + 2**-20
    assert digest_network(Network.from_module(model, shape).nodes) != first


def test_a_question_changes_with_each_of_its_parts() -> None:
    region = Region(torch.zeros(2), torch.ones(2))
    question = Problem(torch.ones(2) / 2, region, torch.ones(1, 3).double(), torch.zeros(1).double())
    others = [
        replace(question, image=torch.tensor([0.5, 0.25])),
        replace(question, region=Region(region.lower, 2 * region.upper)),
        replace(question, region=Region(-region.upper, region.upper)),
        replace(question, spec=-question.spec),
        replace(question, offset=question.offset + 1e-300),
    ]
    digests = [digest_question("a", question), digest_question("b", question)]
    digests += [digest_question("a", other) for other in others]
    assert len(set(digests)) == len(digests)
    assert digest_question("a", question.to("cpu")) == digests[0]
