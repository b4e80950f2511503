"""How each operation is written in nodes: one handler for each name in `lingraft.model.operations`."""

from lingraft.solver.lowering import arithmetic, functions, moves, pooling, weights
from lingraft.solver.lowering.building import HANDLERS, Building

__all__ = ["HANDLERS", "Building", "arithmetic", "functions", "moves", "pooling", "weights"]
