"""A stopped search in parts: nothing gets lost between them, and together they give the verdict of the whole."""

import itertools
import pickle
from collections.abc import Callable
from functools import partial

import pytest
import random_networks as nets
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lingraft.pool.problems import VerifyProblems
from lingraft.pool.work import Divided
from lingraft.solver import bab
from lingraft.solver import verifier as verifier_module
from lingraft.solver.bab import Pool, Search, Stopped
from lingraft.solver.budget import Budget, Exhausted
from lingraft.solver.confirmation import checked
from lingraft.solver.division import Division
from lingraft.solver.dual import Domains, Dual, root_domains
from lingraft.solver.falsify import Falsifier
from lingraft.solver.remainder import OpenMargin, Remainder
from lingraft.solver.request import Limits, Request
from lingraft.solver.verifier import Result, Verifier


def after(checks: int) -> Callable[[], bool]:
    """Stops at the given check of a search, counted from 0, and at all later ones."""
    counter = itertools.count()
    return lambda: next(counter) >= checks


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["relu", "relu", "leaky", "tanh"]),
    share=st.floats(0.01, 0.9),
    conv=st.booleans(),
    checks=st.integers(0, 6),
    parts=st.integers(2, 5),
)
def test_every_counterexample_is_in_a_part(
    seed: int, kind: str, share: float, conv: bool, checks: int, parts: int
) -> None:
    *_, collapsed, z, margins = nets.partly_negative(seed, kind, share, conv)
    dual, exact = Dual(collapsed, torch.float32), Dual(collapsed, torch.float64)
    root = root_domains(collapsed, torch.float32)
    before = [tensor.clone() for tensor in vars(root).values()]
    search = Search(collapsed, dual, exact, Budget(), lambda points, last=False: None, stop=after(checks))
    try:
        search.run(root, dual.bound(root))
    except Stopped as stopped:
        base, pool = stopped.base, stopped.pool
    except Exception:  # it ended before there was anything to share out
        return
    assert all(torch.equal(old, new) for old, new in zip(before, vars(root).values(), strict=True)), "root was changed"
    assert bool((base.lower >= root.lower).all() and (base.upper <= root.upper).all())
    assert search.lowest is not None
    assert search.lowest <= float(margins.min()) + 1e-4, "the lowest bound is above a margin"
    margin = OpenMargin(base, dual.bound(base), pool)
    dealt = Remainder(collapsed, torch.tensor([0]), [margin, OpenMargin(root, dual.bound(root))]).divide(parts)
    pieces = [piece for part in dealt for piece in part]
    assert 2 <= len(dealt) <= parts
    assert sum(piece.pool is None for piece in pieces) == 1
    shares = [piece.pool for piece in pieces if piece.pool is not None]
    assert sum(map(len, shares)) == len(pool)
    inside = torch.zeros(z.shape[1], dtype=torch.bool)
    for domains in (some.domains for some in shares):
        above = z[:, :, None] >= domains.lower[:, None].double() - 1e-9
        below = z[:, :, None] <= domains.upper[:, None].double() + 1e-9
        inside |= (above & below).all(0).any(1)
    assert bool((margins <= 0).any())
    assert bool(inside[margins <= 0].all())


class Eager(VerifyProblems):
    """Divides as often as it can, until it has been asked `limit` times."""

    limit = 12

    def _is_wanted(self) -> bool:
        self.limit -= 1
        self.wanted_parts = 3
        return self.limit >= 0


def in_parts(request: Request) -> tuple[Result, int]:
    """The verdict on an image whose search is divided again and again, and how often it was."""
    work = Eager(request.network, Limits())
    work.prepare(float("inf"))
    division, divided = Division(), 0
    questions: list[Callable[[], Result | Divided]] = [lambda: work.answer((request.problem(0), 0), 600.0)]
    while questions and not (divided and division.done):
        answer = questions.pop()()
        if isinstance(answer, Divided):
            divided += 1
            common = pickle.loads(answer.common)
            questions += [partial(work.resume, common, pickle.loads(part), 600.0) for part in answer.parts]
            division.add(answer.result, 0.0, len(answer.parts))
        else:
            division.add(answer, 0.0)
    assert division.done
    return division.result, divided


@pytest.mark.slow
@pytest.mark.parametrize("above", [0.1, -0.03])
def test_parts_give_the_verdict_of_the_whole(above: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without attacks before the branching, which would find the counterexamples at once."""
    monkeypatch.setattr(Falsifier, "search", lambda *arguments: None)
    monkeypatch.setattr(verifier_module, "FEW_INPUTS", 0)  # which of two searches is faster is not asked here
    divisions = 0
    for seed in (1, 3):
        request = nets.branchy(seed, above)
        whole = Verifier(request.network).verify(request.problem(0), 600.0)
        assert whole.verdict == ("verified" if above > 0 else "falsified")
        result, divided = in_parts(request)
        assert (result.verdict, result.stage, result.unstable) == (whole.verdict, whole.stage, whole.unstable)
        if above < 0:
            assert checked(request, 0, result).verdict == "falsified"
        divisions += divided
    if above > 0:  # a counterexample may be found before there is anything to divide
        assert divisions > 4


@pytest.mark.slow
@pytest.mark.parametrize("few", [0, 20])
def test_parts_of_a_smooth_network_give_the_verdict_of_the_whole(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits of intervals, with and without boxes in turn with them; without tightening, which would need no splits."""
    monkeypatch.setattr(Falsifier, "search", lambda *arguments: None)
    monkeypatch.setattr(verifier_module, "FEW_INPUTS", few)
    monkeypatch.setattr(bab, "TIGHTENED", 0)
    request = nets.branchy(1, 0.01, nn.Tanh, width=20)
    result, divided = in_parts(request)
    assert result.verdict == "verified"
    assert divided > 0
    assert result.domains > 0


def results(*verdicts: str) -> list[Result]:
    """Of parts; what branching left is known of those that are unknown."""
    how = {"unknown": {"reason": "time", "branched": -0.5}}
    return [Result(v, "branch", domains=2, memory=5.0, **how.get(v, {})) for v in verdicts]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["verified", "verified", "verified"], "verified"),
        (["verified", "falsified"], "falsified"),
        (["unknown", "falsified"], "falsified"),
        (["verified", "unknown", "verified"], "unknown"),
        (["misclassified", "verified", "verified"], "misclassified"),
        (["verified", "verified"], None),
        (["verified", "unknown"], None),
    ],
)
def test_verified_only_if_all_parts_are(verdicts: list[str], expected: str | None) -> None:
    division = Division()
    division.add(Result("unknown", "branch", "stopped", domains=10, crown=[1.0], branched=-1.0), 3.0, parts=3)
    for seconds, result in enumerate(results(*verdicts)):
        assert not division.done
        division.add(result, 4.0 + seconds)
    assert division.done == (expected is not None)
    if expected is not None:
        result = division.result
        assert result.verdict == expected
        assert (result.reason == "time") == (expected == "unknown")
        assert result.branched == {"verified": 0.0, "unknown": -0.5}.get(
            expected, -0.5 if "unknown" in verdicts else -1.0
        )
        assert (result.domains, result.seconds, result.crown) == (10 + 2 * len(verdicts), 3.0 + len(verdicts), [1.0])


def test_a_copy_of_a_remainder_keeps_what_is_taken_from_it() -> None:
    *_, collapsed, _, _ = nets.partly_negative(3, "relu", 0.5)
    dual, root = Dual(collapsed, torch.float32), root_domains(collapsed, torch.float32)
    pool = Pool(dual.bound(root).repeat(2), Domains.join([root, root]))
    remainder = Remainder(collapsed, torch.tensor([0]), [OpenMargin(root, dual.bound(root), pool)])
    copied = remainder.copy().margins[0].pool
    assert copied is not None
    copied.take(1)
    assert (len(copied), len(pool), len(pool.domains)) == (1, 2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("above", [0.05, -0.05])
def test_parts_have_the_verdict_of_the_whole_where_only_boxes_find_it(above: float) -> None:
    """The search over neurons has no time for what it resumes: the region is cut instead."""
    request = nets.branchy(3, above)
    verifier, problem = Verifier(request.network), request.problem(0)
    whole = verifier.verify(problem, 60, stop=after(1))
    if whole.remainder is None:
        assert whole.verdict == ("verified" if above > 0 else "falsified")
        return
    verdicts = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Search, "run", _out_of_time)
        for part in whole.remainder.divide(2):
            left = Remainder(whole.remainder.collapsed, whole.remainder.numbers, part)
            verdicts.append(verifier.resume(problem, left, 60).verdict)
    assert set(verdicts) == ({"verified"} if above > 0 else {"falsified"})


def _out_of_time(*_: object) -> None:
    raise Exhausted("time")
