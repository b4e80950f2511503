"""How much more than 0 a margin has to be."""

import torch
from torch import Tensor

#: A margin counts as proven where its lower bound, computed in float64, exceeds this: far more than float64 rounds away
#: for ordinary weights (`rounding.py` is about others). A point is not left out of a search before its margin does.
#: Where the terms of a margin are small, the verifier multiplies it until they are not.
MARGIN = 1e-6


def proven(bounds: Tensor) -> Tensor:
    """Which bounds prove their margins. Overflow proves nothing: infinity is no more a proof than NaN."""
    return (bounds > MARGIN) & torch.isfinite(bounds)
