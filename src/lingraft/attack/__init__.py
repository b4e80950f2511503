"""Attacks in the ℓ∞ ball: one method a file."""

from lingraft.attack.fgsm import fgsm
from lingraft.attack.pgd import pgd
from lingraft.attack.registry import register
from lingraft.attack.search import find_unbroken

__all__ = ["fgsm", "find_unbroken", "pgd", "register"]
