"""Noise that depends on nothing but (seed, restart, image, pixel)."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lingraft.attack.noise import uniform_noise


def rows(seed: int, restart: list[int], image: list[int]) -> torch.Tensor:
    return uniform_noise(seed, torch.tensor(restart), torch.tensor(image), (3, 16, 16))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(-(2**40), 2**40),
    pairs=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 100_000)), min_size=1, max_size=6),
)
def test_rows_do_not_depend_on_the_others(seed: int, pairs: list[tuple[int, int]]) -> None:
    together = rows(seed, [restart for restart, _ in pairs], [image for _, image in pairs])
    for row, (restart, image) in zip(together, pairs, strict=True):
        assert torch.equal(row, rows(seed, [restart], [image])[0])
    assert float(together.min()) >= -1
    assert float(together.max()) < 1


def test_looks_uniform_and_uncorrelated() -> None:
    image, restart = torch.meshgrid(torch.arange(40), torch.arange(10), indexing="ij")
    noise = uniform_noise(7, restart.flatten(), image.flatten(), (3, 16, 16)).flatten(1)
    n = noise.numel()
    assert abs(float(noise.mean())) < 5 / (3 * n) ** 0.5
    counts = torch.histc(noise, bins=64, min=-1, max=1)
    chi_squared = float(((counts - n / 64) ** 2 / (n / 64)).sum())
    assert chi_squared < 120  # 63 degrees of freedom: mean 63, and 120 has probability 2e-5
    correlation = torch.corrcoef(noise)
    off_diagonal = correlation[~torch.eye(len(noise), dtype=torch.bool)].abs().max()
    assert float(off_diagonal) < 5.5 / noise.shape[1] ** 0.5
    for shift in (1, 16, 256):
        assert abs(float((noise[:, shift:] * noise[:, :-shift]).mean())) * 3 < 5 / n**0.5


def test_no_two_rows_are_shifts_of_each_other() -> None:
    count = 400
    noise = uniform_noise(1, torch.arange(count) % 4, torch.arange(count) // 4, (256,))
    assert len(torch.unique(noise)) > 0.99 * noise.numel()


def test_seeds_differ() -> None:
    assert not torch.equal(rows(0, [0], [0]), rows(1, [0], [0]))
