"""Generators derived from what they are for, so that no random state has to be saved."""

import hashlib

import torch


def derive_seed(*key: int | str) -> int:
    """63 well mixed bits for a key such as (seed, "noise", epoch)."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "little") >> 1


def derive_generator(device: torch.device | str, *key: int | str) -> torch.Generator:
    """A new generator on `device`, the same for the same key."""
    return torch.Generator(device).manual_seed(derive_seed(*key))
