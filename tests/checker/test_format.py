"""The file format: what is written is read again, and anything else is rejected with a reason."""

import dataclasses
import json
import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.checker import format as format_module
from lingraft.checker.format import FIRST_LINE, PARTS, TYPES, Certificate, Part, Rejected, decode, encode, tree_of


def example(ball: bool = True) -> Certificate:
    rng = np.random.default_rng(0)
    taps, parts = 4, {}
    for name, kind, rank in PARTS:
        shape = (int(rng.integers(2, 4)), taps) if rank == 2 else (int(rng.integers(1, 4)),)
        parts[name] = (rng.integers(0, 200, shape) if kind != "i1" else rng.integers(-1, 2, shape)).astype(TYPES[kind])
    for group in (["rounds.taps", "rounds.sides", "rounds.gamma", "rounds.alpha"], ["clips.forms_in_force", "clips.forms_alpha", "clips.groups"],
                  ["clips.nodes", "clips.in_force", "clips.forms", "clips.multipliers.alpha"]):  # fmt: skip
        for name in group:
            parts[name] = np.resize(parts[name], (3, *parts[name].shape[1:]))
    certificate = Certificate("0" * 64, about={"data": "digits", "index": 7}, trees=[tree_of(1, parts)])
    certificate.taps = {0: np.array([1, 5, 2], np.int32), 3: np.array([0], np.int32)}
    if ball:
        certificate.image, certificate.eps = rng.random((1, 3, 3)).astype(np.float32), 0.1
        certificate.clip, certificate.label = (0.0, 1.0), 2
    else:
        certificate.lower, certificate.upper = rng.random((1, 3, 3)), 1 + rng.random((1, 3, 3))
        certificate.constraints, certificate.group = (rng.random((4, 3)), rng.random(4)), 2
    return certificate


def plain(value):
    """Everything in a certificate as comparable values."""
    if dataclasses.is_dataclass(value):
        return {name: plain(part) for name, part in vars(value).items()}
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return (value.dtype.str, value.tolist()) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("ball", [True, False])
def test_what_is_written_is_read(ball):
    certificate = example(ball)
    certificate.part = None if ball else Part("a" * 64, 2, 5)
    content = encode(certificate)
    certificate.packed = len(content)
    assert plain(decode(content)) == plain(certificate)


def test_slopes_of_facets_need_not_be_there_but_are_one_row():
    certificate = example()
    assert not len(decode(encode(certificate)).trees[0].facets.slopes)
    certificate.trees[0].facets.slopes = np.array([[0, 255, 3, 7]], np.uint8)
    content = encode(certificate)
    certificate.packed = len(content)
    assert plain(decode(content)) == plain(certificate)
    certificate.trees[0].facets.slopes = np.zeros((2, 4), np.uint8)
    with pytest.raises(Rejected, match="do not fit together"):
        decode(encode(certificate))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_files_are_rejected_or_read_as_something_else(data):
    content = bytearray(encode(example()))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    with pytest.raises(Rejected):
        decode(bytes(content[:cut]) if cut < len(content) else bytes(content) + b"x")
    with suppress(Rejected):  # anything else is a crash
        decode(bytes(content))


def rewritten(change) -> bytes:
    """The example with its header changed."""
    content = encode(example())
    start = len(FIRST_LINE)
    end = content.index(b"\n", start)
    length = int(content[start:end])
    header = json.loads(content[end + 1 : end + 1 + length])
    change(header)
    text = json.dumps(header).encode()
    return FIRST_LINE + b"%d\n" % len(text) + text + content[end + 1 + length :]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda h: h.update(label=-1), "counts"),
        (lambda h: h.update(label=True), "counts"),
        (lambda h: h.update(label=None), "'(constraints|offsets)' .* missing"),
        (lambda h: h["region"].update(eps=float("nan")), "finite"),
        (lambda h: h["region"].update(image_sha256="0" * 64), "hash"),
        (lambda h: h["arrays"][0].update(shape=[1 << 20, 1 << 20]), "too large"),
        (lambda h: h["arrays"][0].update(shape=[1, 3, 2]), "damaged"),
        (lambda h: h["arrays"][0].update(type="i4"), "type"),
        (lambda h: h["arrays"].append(h["arrays"][0]), "unique"),
        (lambda h: h["arrays"].pop(), "length"),
        (lambda h: h["sites"].append([3, 0]), "taps"),
        (lambda h: h.update(trees=[1, 2]), "missing"),
        (lambda h: h.update(trees=[]), "belong"),
        (lambda h: h["arrays"][-1].update(name="0.other"), "missing"),
        (lambda h: h.update(model_sha256=5), "SHA-256"),
        (lambda h: h.update(model_sha256="\ud800" * 64), "SHA-256"),
        (lambda h: h["region"].update(eps=10**400), "finite"),
        (lambda h: h["region"].update(eps="0.1"), "finite"),
        (lambda h: h["region"].update(clip=[0, -(10**400)]), "finite"),
        (lambda h: h.update(label=10**400), "counts"),
        (lambda h: h["arrays"][0].update(shape=[10**400]), "counts"),
        (lambda h: h["arrays"][0].update(name="\ud800"), "missing"),
        (lambda h: h["arrays"][0].update(name=[]), "damaged"),
        (lambda h: h["arrays"][0].update(shape=[1] * 100), "dimensions"),
        (lambda h: h.update(about=[]), "damaged"),
        (lambda h: h.update(about={"x": float("inf")}), "finite"),
        (lambda h: h["arrays"][0].update(shape=[(1 << 39) + 1] * 20_000), "dimensions"),
        (lambda h: h.update(trees=[0] * 300_000), "missing"),
        (lambda h: h.update(trees={"0": 1}), "counts"),
        (lambda h: h.update(trees=5), "damaged"),
        (lambda h: h.update(part=[1]), "damaged"),
        (lambda h: h.update(part={"property_sha256": "a" * 64, "box": 1}), "part"),
        (lambda h: h.update(part={"property_sha256": "a" * 63, "box": 1, "boxes": 1}), "SHA-256"),
        (lambda h: h.update(part={"property_sha256": "a" * 64, "box": 0, "boxes": 1}), "box 0 of 1"),
        (lambda h: h.update(part={"property_sha256": "a" * 64, "box": 3, "boxes": 2}), "box 3 of 2"),
        (lambda h: h.update(part={"property_sha256": "a" * 64, "box": True, "boxes": 2}), "counts"),
    ],
)
def test_a_header_that_does_not_fit_is_rejected(change, reason):
    with pytest.raises(Rejected, match=reason):
        decode(rewritten(change))


def with_header(text: bytes) -> bytes:
    return FIRST_LINE + b"%d\n" % len(text) + text


@pytest.mark.parametrize(
    "text",
    [
        b'{"label": ' + b"9" * 5000 + b"}",
        b'{"about": 1e999}',
        b'{"about": ' + b"[" * 400_000,
        b'{"about": ' + b'{"a":' * 100_000,
        b"\xff\xfe",
        b'"text"',
        b"null",
        b"[]",
    ],
)
def test_headers_that_python_cannot_take_are_rejected(text):
    with pytest.raises(Rejected) as caught:
        decode(with_header(text))
    assert 0 < len(str(caught.value)) < 400


def test_headers_that_say_something_twice_are_rejected():
    content = encode(example())
    text = content.replace(b'"label": 2', b'"label": 2, "label": 1')
    length = int(content[len(FIRST_LINE) :].split(b"\n")[0])
    with pytest.raises(Rejected, match="twice"):
        decode(text.replace(b"%d\n" % length, b"%d\n" % (length + len(text) - len(content)), 1))


def test_nan_and_infinity_in_arrays_are_rejected():
    for bad in (np.nan, np.inf):
        certificate = example()
        certificate.trees[0].rounds.gamma[1] = bad
        with pytest.raises(Rejected, match="NaN or infinity"):
            decode(encode(certificate))


def test_a_small_file_cannot_unpack_to_a_large_one(monkeypatch):
    monkeypatch.setattr(format_module, "MAX_BYTES", 1000)
    certificate = example()
    certificate.image = np.zeros((1, 30, 30), np.float32)
    content = encode(certificate)
    assert len(zlib.compress(certificate.image.tobytes())) < 100
    with pytest.raises(Rejected, match="too large"):
        decode(content)


def test_arrays_are_unpacked_only_if_all_of_them_may_be(monkeypatch):
    """The last array is too large for the file: the first is not touched."""
    certificate = example()
    certificate.trees[0].nodes = np.zeros(6_000_000, np.int32)
    content = encode(certificate)
    monkeypatch.setattr(format_module.zlib, "decompressobj", lambda: pytest.fail("unpacked"))
    with pytest.raises(Rejected, match=r"'0\.nodes' is too large for a file of"):
        decode(content)


def test_other_versions_are_rejected():
    content = encode(example())
    with pytest.raises(Rejected, match="version 2"):
        decode(content.replace(b"certificate 2", b"certificate 1", 1))
