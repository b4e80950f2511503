"""Accepted are only certificates whose claim is true: against exact minima in rational numbers."""

import copy
import itertools
from fractions import Fraction

import numpy as np
import pytest

from lingraft.certificates.check import check, check_file
from lingraft.certificates.format import Certificate, Rejected, decode, encode

#: Networks for which the simple prover of these tests finds a tree with several leaves, quickly.
SEEDS = [5, 6, 14, 57, 62, 79, 117, 145]


def claim_of(network, center: float, eps: float, label: int) -> Certificate:
    image = np.array([center], np.float32)
    return Certificate(network.sha256, label=label, image=image, eps=eps, clip=None)


def accepted(certificate: Certificate, network) -> bool:
    try:
        check(certificate, network)
    except Rejected:
        return False
    return True


def true(certificate: Certificate, layers, exact) -> bool:
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
    net = exact(layers)
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


def largest_provable(network, layers, exact, prove, rng):
    """A claim that is true but would not be for a little larger ε, with its proof."""
    center = float(np.float32(rng.uniform(-1, 1)))
    values = [float(v) for v in exact(layers).minima(center, center)]
    label = int(np.argmax(values))
    low, high = 0.0, 4.0
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if true(claim_of(network, center, middle, label), layers, exact) else (low, middle)
    if high > 3.9:
        return None, high
    return prove(network, claim_of(network, center, 0.97 * low, label), rounds=int(rng.integers(0, 3))), high


@pytest.fixture
def proven(fully_connected, exact, prove):
    """Networks of one input with certificates of claims that are nearly false."""

    def make(seed: int):
        rng = np.random.default_rng(seed)
        layers = random_layers(rng)
        network = fully_connected(layers)
        certificate, limit = largest_provable(network, layers, exact, prove, rng)
        assert certificate is not None
        assert certificate.leaves > 1
        return layers, network, certificate, limit

    return make


@pytest.mark.parametrize("seed", SEEDS)
def test_proofs_are_accepted_and_wider_claims_are_not(proven, exact, seed):
    layers, network, certificate, limit = proven(seed)
    check(decode(encode(certificate)), network)
    assert true(certificate, layers, exact)
    certificate.eps = limit * 1.01
    assert not true(certificate, layers, exact)
    with pytest.raises(Rejected):
        check(certificate, network)


def mutate(certificate: Certificate, rng) -> Certificate:
    """One random change, of what is claimed or of the proof."""
    new = copy.deepcopy(certificate)
    trees = [tree for tree in new.trees if len(tree.nodes)]
    choice = int(rng.integers(0, 16))
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
        new.trees.remove(trees[int(rng.integers(0, len(trees)))])
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
    elif choice == 11 and tree.alpha.size:
        tree.alpha[pick(tree.alpha)] = rng.integers(0, 256, tree.alpha.shape[1])
    elif choice == 12 and len(tree.beta):
        tree.beta[pick(tree.beta)] *= rng.choice([-1, 0, 10, 1e30, np.nan, np.inf])
    elif choice == 13 and len(tree.rounds.gamma):
        tree.rounds.gamma[pick(tree.rounds.gamma)] *= rng.choice([-1, 0, 100, 1e30, np.nan, np.inf])
    elif choice == 14 and len(tree.rounds.sides):
        i = pick(tree.rounds.sides)
        tree.rounds.sides[i] = rng.integers(-2, 3)
        tree.rounds.taps[i] = rng.integers(-1, 14)
    elif choice == 15:
        tree.in_force[pick(tree.in_force)] = rng.integers(-1, 4)
        if len(tree.rounds.sizes):
            tree.rounds.sizes[pick(tree.rounds.sizes)] += rng.integers(-1, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_changed_certificate_is_accepted_only_if_its_claim_is_true(proven, exact, seed):
    layers, network, certificate, _ = proven(seed)
    rng = np.random.default_rng(1000 + seed)
    outcomes = []
    for _ in range(60):
        changed = certificate
        for _ in range(int(rng.integers(1, 4))):
            changed = mutate(changed, rng)
        outcome = accepted(changed, network)
        outcomes.append(outcome)
        assert not outcome or true(changed, layers, exact)
    assert not all(outcomes)


def test_bytes_of_a_file_changed_at_random(proven, exact, tmp_path):
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
        assert not report.accepted or true(report.certificate, layers, exact)
        assert report.accepted or report.reason
