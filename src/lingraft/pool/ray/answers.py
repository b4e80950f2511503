"""Verdicts from a Ray cluster."""

from collections.abc import Iterator

from lingraft.pool.answerer import setup_of
from lingraft.pool.crew import Ask, Crew
from lingraft.pool.place import Place
from lingraft.pool.ray.connection import connected
from lingraft.pool.ray.ray_workers import RayStaff
from lingraft.solver.request import Limits, Request
from lingraft.solver.verifier import Result


def answers_of_ray(
    request: Request, limits: Limits, place: Place, numbers: list[int], ask: Ask
) -> Iterator[tuple[int, Result]]:
    """The number and the result of some images of a request, as they finish on the cluster at `place.ray`."""
    if not numbers:
        return
    assert place.ray is not None
    with connected(place.ray, place.workers) as ray:
        setup = setup_of(request.network, limits)
        staff = RayStaff(ray, setup, place.workers, limits.memory, request.device.type == "cuda")
        yield from Crew(staff, limits.timeout).run(numbers, ask)
