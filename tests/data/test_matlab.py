"""MATLAB files; scipy makes them and says what is in them."""

import io
import struct
import zlib

import numpy as np
import pytest
import scipy.io
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.data.matlab import arrays

RNG = np.random.default_rng(0)


IMAGES = RNG.integers(0, 256, (32, 32, 3, 7), dtype=np.uint8)


def mat(compress: bool = True, **variables: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, variables, do_compression=compress)
    return buffer.getvalue()


HEADER = mat(X=IMAGES)[:128]


def test_a_bomb_is_not_unpacked():
    bomb = zlib.compress(bytes(30_000_000))
    with pytest.raises(ValueError, match="more than 1,000 bytes"):
        arrays(HEADER + struct.pack("<II", 15, len(bomb)) + bomb, 1000)


def test_memory_is_not_set_aside_for_claims():
    # a matrix element that says it holds 2³¹−1 × 2³¹−1 bytes
    inside = struct.pack("<IIII", 6, 8, 9, 0) + struct.pack("<IIii", 5, 8, 2**31 - 1, 2**31 - 1)
    inside += struct.pack("<HH", 1, 1) + b"X\0\0\0" + struct.pack("<HH", 2, 1) + b"\7\0\0\0"
    with pytest.raises(ValueError, match="do not fit the shape"):
        arrays(HEADER + struct.pack("<II", 14, len(inside)) + inside, 1000)


def test_big_endian():
    inside = struct.pack(">IIII", 6, 8, 4 + 6, 0) + struct.pack(">IIii", 5, 8, 1, 2)
    inside += struct.pack(">HH", 1, 1) + b"y\0\0\0" + struct.pack(">HHhh", 4, 3, 258, -1)
    content = HEADER[:124] + b"\x01\x00MI" + struct.pack(">II", 14, len(inside)) + inside
    assert arrays(content, 1000)["y"].tolist() == [[258, -1]]


@settings(deadline=None)
@given(
    st.sampled_from(["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"]),
    st.lists(st.integers(1, 4), min_size=2, max_size=4),
    st.booleans(),
)
def test_same_as_scipy(kind: str, shape: list[int], compress: bool):
    values = np.arange(np.prod(shape)).reshape(shape).astype(kind)
    content = mat(compress, first=values, second_with_a_long_name=values * 2)
    ours, theirs = arrays(content, 10_000), scipy.io.loadmat(io.BytesIO(content))
    assert set(ours) == {"first", "second_with_a_long_name"}
    for name, found in ours.items():
        np.testing.assert_array_equal(found, theirs[name])
        assert found.shape == tuple(shape)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_random_bytes_are_only_ever_a_value_error(content: bytes, with_header: bool):
    with pytest.raises(ValueError, match="it"):
        # 8 bytes that are not a type of element, so that nothing after them can be right
        arrays((HEADER + b"\x63\0\0\0\0\0\0\0" if with_header else b"") + content, 10_000)
