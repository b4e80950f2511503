"""Accepted are only certificates whose claim is true: against exact minima in rational numbers."""

import copy
import itertools
import os
from fractions import Fraction

import numpy as np
import pytest
from exact_rational import Exact
from simple_prover import prove

from lingraft.checker.check import check, check_file
from lingraft.checker.format import EMPTY, LEAF, Certificate, FacetShares, Rejected, decode, encode

#: Networks for which the simple prover of these tests finds a tree with several leaves, quickly.
SEEDS = [57, 147, 62, 82, 106, 112, 117, 145]

#: One of them whose first tree has rounds and clips.
ROUNDS = 106

#: How many changed certificates are tried in all; `benchmarks/certificates.py --mutations` tries more.
MUTATIONS = int(os.environ.get("LINGRAFT_MUTATIONS", "480"))


def claim_of(network, center: float, eps: float, label: int) -> Certificate:
    image = np.array([center], np.float32)
    return Certificate(network.sha256, label=label, image=image, eps=eps, clip=None)


def accepted(certificate: Certificate, network) -> bool:
    try:
        check(certificate, network)
    except Rejected as error:
        reason = str(error)
    else:
        return True
    assert "mistake in lingraft" not in reason
    return False


def true(certificate: Certificate, layers) -> bool:
    """Whether the claim holds, in exact arithmetic; the region is taken as the checker describes it."""
    if certificate.label is None or certificate.label >= len(layers[-1][1]):
        return False
    if certificate.image is not None:
        center, eps = Fraction(float(certificate.image[0])), Fraction(certificate.eps)
        low, high = center - eps, center + eps
        if certificate.clip is not None:
            low, high = max(low, Fraction(certificate.clip[0])), min(high, Fraction(certificate.clip[1]))
    else:
        low, high = Fraction(float(certificate.lower[0])), Fraction(float(certificate.upper[0]))
    if low > high:
        return False
    net = Exact(layers)
    pieces = net._pieces(low, high)
    label = certificate.label
    return all(
        (lines[label][0] - a) * x + lines[label][1] - b > 0
        for left, right, lines in pieces
        for i, (a, b) in enumerate(lines)
        if i != label
        for x in (left, right)
    )


def random_layers(rng) -> list:
    widths = [1, 7, 6, 3]
    return [
        (rng.standard_normal((m, n)) / np.sqrt(n), rng.standard_normal(m) * 0.6) for n, m in itertools.pairwise(widths)
    ]


def largest_provable(network, layers, rng):
    """A claim that is true but would not be for a little larger ε, with its proof."""
    center = float(np.float32(rng.uniform(-1, 1)))
    values = [float(v) for v in Exact(layers).minima(center, center)]
    label = int(np.argmax(values))
    low, high = 0.0, 4.0
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if true(claim_of(network, center, middle, label), layers) else (low, middle)
    if high > 3.9:
        return None, high
    return prove(network, claim_of(network, center, 0.97 * low, label), rounds=int(rng.integers(0, 3))), high


@pytest.fixture
def proven(fully_connected):
    """Networks of one input with certificates of claims that are nearly false."""

    def make(seed: int):
        rng = np.random.default_rng(seed)
        layers = random_layers(rng)
        network = fully_connected(layers)
        certificate, limit = largest_provable(network, layers, rng)
        assert certificate is not None
        assert certificate.leaves > 1
        return layers, network, certificate, limit

    return make


@pytest.mark.parametrize("seed", SEEDS)
def test_proofs_are_accepted_and_wider_claims_are_not(proven, seed):
    layers, network, certificate, limit = proven(seed)
    check(decode(encode(certificate)), network)
    assert true(certificate, layers)
    certificate.eps = limit * 1.01
    assert not true(certificate, layers)
    with pytest.raises(Rejected):
        check(certificate, network)


def _shorter(tree) -> None:
    tree.nodes = tree.nodes[:-1]
    tree.in_force = tree.in_force[:-1]


def _with_facets(certificate: Certificate, sizes=None, pixels=(0,)) -> None:
    """One entry of the first tap, or something else."""
    sizes = [1] + [0] * (certificate.count - 1) if sizes is None else sizes
    certificate.trees[0].facets = FacetShares(np.array(sizes), np.array(pixels), np.array([7]))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda c: setattr(c, "model", "f" * 64), "another model"),
        (lambda c: setattr(c, "label", 3), "label 3"),
        (lambda c: setattr(c, "image", np.zeros(2, np.float32)), "shape"),
        (lambda c: setattr(c, "clip", (2.0, -2.0)), "empty"),
        (lambda c: c.trees.append(c.trees[0]), "two for one"),
        (lambda c: setattr(c.trees[0], "margin", 2), "do not exist"),
        (lambda c: c.trees.clear(), "default bound"),
        (lambda c: c.taps.update({7: np.zeros(1, np.int32)}), "activation 7"),
        (lambda c: c.taps.update({0: c.taps[0] * 0}), "taps of activation 0"),
        (lambda c: c.taps.update({0: c.taps[0] + 99}), "taps of activation 0"),
        (lambda c: c.trees[0].nodes.__setitem__(0, 99), "does not exist"),
        (lambda c: c.trees[0].nodes.__setitem__(0, -3), "does not exist"),
        (lambda c: _shorter(c.trees[0]), "a leaf is missing"),
        (lambda c: setattr(c.trees[0], "nodes", np.append(c.trees[0].nodes, -1)), "not one tree"),
        (lambda c: setattr(c.trees[0], "nodes", c.trees[0].nodes[:0]), "not one tree"),
        (lambda c: setattr(c.trees[0], "in_force", c.trees[0].in_force[:-1]), "do not fit the tree"),
        (lambda c: setattr(c.trees[0].multipliers, "alpha", c.trees[0].multipliers.alpha[:-1]), "do not fit the tree"),
        (lambda c: setattr(c.trees[0].multipliers, "beta", c.trees[0].multipliers.beta[:-1]), "do not fit the tree"),
        (lambda c: c.trees[0].multipliers.sizes.__setitem__(0, -1), "do not fit the tree"),
        (lambda c: c.trees[0].multipliers.taps.__setitem__(0, 99), "do not fit the tree"),
        (lambda c: c.trees[0].clips.forms.__setitem__(0, 1), "forms are used that do not exist"),
        (lambda c: c.trees[0].clips.in_force.__setitem__(0, -1), "rounds are used that do not exist"),
        (lambda c: c.trees[0].clips.forms_in_force.__setitem__(0, 9), "rounds are used that do not exist"),
        (lambda c: c.trees[0].clips.grid.__setitem__(0, -0.5), "negative multiplier"),
        (lambda c: setattr(c.trees[0].clips, "nodes", c.trees[0].clips.nodes[:0]), "not proven|not"),
        (lambda c: c.trees[0].in_force.__setitem__(0, 9), "rounds are used that do not exist"),
        (lambda c: c.trees[0].rounds.gamma.__setitem__(0, -1e-3), "negative multiplier"),
        (lambda c: c.trees[0].rounds.sides.__setitem__(0, 0), "impossible side"),
        (lambda c: c.trees[0].rounds.taps.__setitem__(0, 99), "impossible tap"),
        (lambda c: c.trees[0].rounds.sizes.__setitem__(0, 99), "rounds do not fit"),
        (lambda c: setattr(c.trees[0].rounds, "sizes", np.zeros(1 << 20, np.int32)), "too much work"),
        (lambda c: _with_facets(c, sizes=[1]), "facets do not fit"),
        (lambda c: _with_facets(c, pixels=[0, 0]), "facets do not fit"),
        (lambda c: _with_facets(c, sizes=[2, -1] + [0] * (c.count - 2)), "facets do not fit"),
        (lambda c: _with_facets(c, pixels=[1]), "pixel that does not exist"),
        (lambda c: _with_facets(c, pixels=[-1]), "pixel that does not exist"),
        (lambda c: _with_facets(c, sizes=[0] * (c.count - 1) + [1]), "behind the first site, without slopes"),
        (lambda c: c.trees[0].multipliers.beta.__setitem__(slice(None), 1e30), "not proven"),
        (lambda c: c.trees[0].multipliers.beta.__setitem__(slice(None), np.nan), "not proven"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(proven, change, reason):
    _, network, certificate, _ = proven(ROUNDS)
    assert len(certificate.trees[0].rounds.gamma)
    assert len(certificate.trees[0].clips.nodes)
    change(certificate)
    with pytest.raises(Rejected, match=reason):
        check(certificate, network)


def mutate(certificate: Certificate, rng) -> Certificate:
    """One random change, of what is claimed or of the proof."""
    new = copy.deepcopy(certificate)
    trees = [tree for tree in new.trees if len(tree.nodes)]
    choice = int(rng.integers(0, 20))
    if choice == 0:
        new.eps = float(new.eps * rng.uniform(1, 1.2))
    elif choice == 1:
        new.label = int(rng.integers(0, 4))
    elif choice == 2:
        new.image = (new.image + rng.normal() * 0.1).astype(np.float32)
    elif choice == 3:
        new.model = new.model[::-1]
    elif choice == 4:
        new.clip = (-0.1, float(rng.normal()))
    elif choice == 5 and new.taps:
        number = list(new.taps)[int(rng.integers(0, len(new.taps)))]
        new.taps[number] = (
            rng.permutation(new.taps[number])
            if rng.random() < 0.5
            else new.taps[number] + np.int32(rng.integers(-1, 2))
        )
    elif choice == 6 and trees:
        gone = trees[int(rng.integers(0, len(trees)))]
        new.trees = [tree for tree in new.trees if tree is not gone]
    elif trees:
        tree = trees[int(rng.integers(0, len(trees)))]
        mutate_tree(tree, choice, rng)
    return new


def mutate_tree(tree, choice: int, rng) -> None:
    def pick(array):
        return int(rng.integers(0, len(array)))

    if choice == 7:
        tree.margin = int(rng.integers(0, 3))
    elif choice == 8:
        tree.nodes = np.delete(tree.nodes, pick(tree.nodes))
    elif choice == 9:
        tree.nodes[pick(tree.nodes)] = rng.integers(-3, 14)
    elif choice == 10:
        i, j = pick(tree.nodes), pick(tree.nodes)
        tree.nodes[[i, j]] = tree.nodes[[j, i]]
    elif choice == 11 and tree.multipliers.alpha.size:
        alpha = tree.multipliers.alpha
        alpha[pick(alpha)] = rng.integers(0, 256, alpha.shape[1])
    elif choice == 12 and len(tree.multipliers.beta):
        i, beta = pick(tree.multipliers.beta), tree.multipliers.beta
        beta[i] = rng.choice([-beta[i], 0, 10, 1e30, np.nan, np.inf])
        tree.multipliers.taps[i] = rng.integers(-1, 14)
    elif choice == 13 and len(tree.rounds.gamma):
        tree.rounds.gamma[pick(tree.rounds.gamma)] = rng.choice([-1, 0, 100, 1e30, np.nan, np.inf])
    elif choice == 14 and len(tree.rounds.sides):
        i = pick(tree.rounds.sides)
        tree.rounds.sides[i] = rng.integers(-2, 3)
        tree.rounds.taps[i] = rng.integers(-1, 14)
    elif choice == 15:
        tree.in_force[pick(tree.in_force)] = rng.integers(-1, 4)
        if len(tree.rounds.sizes):
            tree.rounds.sizes[pick(tree.rounds.sizes)] += rng.integers(-1, 2)
    elif len(tree.clips.nodes):
        clips, i = tree.clips, pick(tree.clips.nodes)
        if choice == 16:
            clips.multipliers.alpha[i] = rng.integers(0, 256, clips.groups.shape[1])
        elif choice == 17:
            clips.nodes[i] = rng.integers(-1, len(tree.nodes) + 1)
        elif choice == 18:
            clips.groups[0] = rng.integers(-1, 4, clips.groups.shape[1])
            clips.forms_alpha[0] = rng.integers(0, 256, clips.groups.shape[1])
        else:
            clips.grid[:] = rng.choice([-1, 0, 0.1, 3, 1e5, 1e30, np.nan], len(clips.grid))


def forge(tree, rng) -> None:
    """One change of a proof that keeps its form, as someone would make it who wants a false claim accepted."""
    choice = int(rng.integers(0, 7))
    leaves, multipliers = np.flatnonzero(tree.nodes < 0), tree.multipliers
    starts = np.concatenate([[0], np.cumsum(multipliers.sizes)])
    if choice == 0 and len(multipliers.alpha):  # a leaf is said to be empty
        which = int(rng.integers(0, len(multipliers.alpha)))
        tree.nodes[np.flatnonzero(tree.nodes == LEAF)[which]] = EMPTY
        gone = np.arange(starts[which], starts[which + 1])
        multipliers.alpha, multipliers.sizes = (
            np.delete(multipliers.alpha, which, axis=0),
            np.delete(multipliers.sizes, which),
        )
        multipliers.taps, multipliers.beta = np.delete(multipliers.taps, gone), np.delete(multipliers.beta, gone)
    elif choice == 1:
        tree.rounds.gamma[:] = -rng.choice([0.1, 1, 10], len(tree.rounds.gamma))
    elif choice == 2:
        tree.rounds.sides[:] = rng.choice([-1, 0, 1, 2], len(tree.rounds.sides))
    elif choice == 3 and len(multipliers.beta):
        multipliers.beta[:] = rng.normal(0, rng.choice([0.1, 10]), len(multipliers.beta))
    elif choice == 4 and len(tree.nodes) > 2:  # the tree ends early
        last = leaves[int(rng.integers(0, len(leaves)))] + 1
        kept, full = int((tree.nodes[:last] < 0).sum()), int((tree.nodes[:last] == LEAF).sum())
        tree.nodes, tree.in_force = tree.nodes[:last], tree.in_force[:kept]
        multipliers.alpha, multipliers.sizes = multipliers.alpha[:full], multipliers.sizes[:full]
        multipliers.taps, multipliers.beta = multipliers.taps[: starts[full]], multipliers.beta[: starts[full]]
    elif choice == 5 and tree.rounds.sizes.size:
        tree.rounds.sizes = np.array([len(tree.rounds.taps)], np.int32)
        tree.in_force[:] = 1
    elif choice == 6:  # clips with multipliers that make them stronger, if these were not checked
        tree.clips.multipliers.beta[:] = rng.normal(0, 10, len(tree.clips.multipliers.beta))
        tree.clips.grid[:] = rng.choice([-1, -0.1, 1, 50], len(tree.clips.grid))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_changed_certificate_is_accepted_only_if_its_claim_is_true(proven, seed):
    """Half of them with a claim that is false by a hair and a proof that is forged."""
    layers, network, certificate, limit = proven(seed)
    rng = np.random.default_rng(1000 + seed)
    outcomes = []
    for number in range(MUTATIONS // len(SEEDS)):
        changed = copy.deepcopy(certificate)
        if number % 2:
            changed.eps = float(limit * rng.uniform(1.0002, 1.01))
            for _ in range(int(rng.integers(1, 4))):
                forge(changed.trees[int(rng.integers(0, len(changed.trees)))], rng)
        else:
            for _ in range(int(rng.integers(1, 4))):
                changed = mutate(changed, rng)
        outcome = accepted(changed, network)
        outcomes.append(outcome)
        assert not outcome or true(changed, layers)
    print(f"network {seed}: {len(outcomes)} changed, {sum(outcomes)} accepted, all of these true")
    assert not all(outcomes)


def test_bytes_of_a_file_changed_at_random(proven, tmp_path):
    layers, network, certificate, _ = proven(145)
    content = encode(certificate)
    rng = np.random.default_rng(5)
    path = tmp_path / "x.cert"
    for _ in range(200):
        damaged = bytearray(content)
        for _ in range(int(rng.integers(1, 3))):
            damaged[int(rng.integers(0, len(damaged)))] = rng.integers(0, 256)
        path.write_bytes(damaged if rng.random() < 0.8 else damaged[: int(rng.integers(0, len(damaged)))])
        report = check_file(path, network)
        assert not report.accepted or true(report.certificate, layers)
        assert report.accepted or report.reason
        assert "mistake in lingraft" not in report.reason
