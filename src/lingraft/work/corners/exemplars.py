"""Pruning identified exemplars (Hooker et al. 2019): images that most of one set of networks see as another class than
most of another set."""

import torch
import torch.nn.functional as F
from torch import Tensor


def modal_classes(predictions: Tensor, classes: int) -> Tensor:
    """The classes that most networks predict: (networks, N) class indices → (N, classes), bool.

    An image has one of them, or several that as many networks predict: ties are not broken here.
    """
    votes = F.one_hot(predictions, classes).sum(0)
    return votes == votes.amax(1, keepdim=True)


def corner_cases(ours: Tensor, theirs: Tensor) -> Tensor:
    """Images that have no modal class in common, given (N, classes) of each side: (M,), int64, ascending.

    So a tie is broken in favour of agreement: an image is a corner case only if the modal predictions differ however
    ties are broken. Neither the order of the networks nor the numbering of the classes matters.
    """
    return (~(ours & theirs).any(1)).nonzero().flatten().to(torch.int64)
