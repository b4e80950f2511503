"""The checker's own evaluation holds the real outputs, and is compared with the program that runs the network."""

from fractions import Fraction

import numpy as np
from handmade_onnx import onnx_bytes
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from lingraft.checker.evaluation import enclosure
from lingraft.checker.onnx_reader import network_of


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-6, 1.0, 1e6]))
def test_the_real_outputs_are_enclosed(seed: int, scale: float) -> None:
    """In rational arithmetic, of a network with all that is exact and all that is not."""
    random = np.random.default_rng(seed)
    w, v = (random.standard_normal(shape).astype(np.float32) * np.float32(scale) for shape in ((4, 3), (4, 2)))
    s, m, var = random.standard_normal(4), random.standard_normal(4), random.random(4)
    arrays = {"w": w.T, "v": v, "s": s, "b": s[::-1], "m": m, "n": var, "d": 3 + random.random(2)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("BatchNormalization", ["a", "s", "b", "m", "n"], ["c"]),
        helper.make_node("LeakyRelu", ["c"], ["e"], alpha=0.25),
        helper.make_node("MatMul", ["e", "v"], ["f"]),
        helper.make_node("Div", ["f", "d"], ["y"]),
    ]
    network = network_of(onnx_bytes(nodes, [1, 3], {name: a.astype(np.float32) for name, a in arrays.items()}), "made")
    x = random.standard_normal(3).astype(np.float32)
    exact = [Fraction(float(n)) for n in x]
    a = [sum(Fraction(float(w[i, j])) * exact[j] for j in range(3)) for i in range(4)]
    h = []
    for i in range(4):
        # √ is irrational: a rational number that is closer to it than any bound that is tested
        total = Fraction(float(np.float32(var[i]))) + Fraction(float(np.float32(1e-5)))
        root = Fraction(_root(total.numerator * 10**80 * total.denominator), 10**40 * total.denominator)
        z = (a[i] - Fraction(float(np.float32(m[i])))) / root * Fraction(float(np.float32(s[i])))
        z += Fraction(float(np.float32(s[::-1][i])))
        h.append(z if z > 0 else z / 4)
    low, high = enclosure(network, x.astype(np.float64))
    for k in range(2):
        y = sum(Fraction(float(v[i, k])) * h[i] for i in range(4)) / Fraction(float(np.float32(arrays["d"][k])))
        assert Fraction(float(low[k])) <= y <= Fraction(float(high[k]))
        assert high[k] - low[k] < 1e-10 * scale * max(1, scale)


def _root(n: int) -> int:
    root = int(n**0.5) if n < 2**1000 else 1 << (n.bit_length() // 2)
    for _ in range(200):
        root = (root + n // root) // 2
    return root
