"""Corner cases: the images that grafting changes a network's mind about (the paper, Appendix, "Corner test cases")."""

from lingraft.work.corners.exemplars import corner_cases, modal_classes
from lingraft.work.corners.study import CornerCase, CornerStudy, Figures, RunFigures, corners, mean

__all__ = [
    "CornerCase",
    "CornerStudy",
    "Figures",
    "RunFigures",
    "corner_cases",
    "corners",
    "mean",
    "modal_classes",
]
