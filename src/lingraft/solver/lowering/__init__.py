"""How each operation is written in nodes: one handler for each name in `lingraft.model.operations`."""

from lingraft.solver.lowering import arithmetic, moves, pooling, weights
from lingraft.solver.lowering.building import HANDLERS, Building

__all__ = ["HANDLERS", "Building", "arithmetic", "moves", "pooling", "weights"]
