"""A result is given out only if the model itself confirms it."""

from lingraft.solver.request import Request
from lingraft.solver.verifier import Result


def checked(request: Request, i: int, result: Result) -> Result:
    """The result, unless the model itself does not confirm it: then it is unknown.

    A witness must lie in the region exactly, as numbers of the model's own precision, and the model must get it wrong.
    Where the network was verified, the model must have the same margins at points of the region.
    """
    if result.verdict == "misclassified":
        return _doubtful(result, "the image is on the boundary: only rounding decides whether the model gets it right")
    if result.verdict == "verified":
        why = request.disagreement(i, low=result.stage not in ("intervals", "crown"))  # else no margin is very low
        return result if why is None else _doubtful(result, why)
    if result.verdict != "falsified":
        return result
    if result.witness is None:
        return _doubtful(result, "a counterexample without a witness")
    witness = request.own_precision(result.witness)
    region = request.region(i)
    inside = (witness.double() >= region.lower.double()) & (witness.double() <= region.upper.double())
    if not bool(inside.all()):
        return _doubtful(result, "the witness found does not lie in the region when rounded as the model needs it")
    if not request.replay(witness[None], [i])[0] < 0:
        return _doubtful(result, "the model itself, in its own precision, does not get the witness found wrong")
    result.witness = witness
    return result


def _doubtful(result: Result, why: str) -> Result:
    result.verdict, result.reason, result.error, result.witness, result.proof = "unknown", "numerical", why, None, None
    return result
