"""One mutation: made, checked by the real checker within limits, and judged."""

import hashlib
import os
import re
import resource
import signal
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import damage_certificates as certificates
import damage_onnx as networks
import numpy as np
import onnx
import onnxruntime
from cases import Case, claim_of
from chance import Skip
from exact import DOUBT, Unknown, outputs_at, rational
from greed import grow_certificate, grow_network
from truth import Claim

from lingraft.checker.bounds import Bounds
from lingraft.checker.check import check_file
from lingraft.checker.format import Certificate, encode
from lingraft.checker.network import Network, inner
from lingraft.checker.nodes import Input, Site
from lingraft.checker.onnx_reader import load_network
from lingraft.errors import LingraftError

#: No check of these small files may take longer (on a core of its own), or more memory on top of what the process has.
SECONDS, BYTES = 10.0, 1 << 30

#: Share of the largest sums by which float32 may differ from real numbers.
SINGLE = 1e-5

onnxruntime.set_default_logger_severity(4)


@dataclass
class Outcome:
    """What became of a mutation.

    `verdict` is "rejected", "accepted" (the claim is true, as far as is known), "refused elsewhere" (accepted, but
    onnxruntime does not take the file), "false", "crash", "slow" or "memory". `known_false`: the claim that was checked is.
    """

    kind: str
    change: str
    verdict: str
    reason: str = ""
    detail: str = ""
    known_false: bool = False
    seconds: float = 0.0
    memory: int = 0
    case: str = ""
    certificate: bytes = b""
    onnx: bytes = b""

    @property
    def bad(self) -> bool:
        return self.verdict in ("false", "crash", "slow", "memory")


class TooSlow(BaseException):
    """Raised by the alarm; nothing that is checked catches it."""


class Meter:
    """Runs something within the limits and measures it."""

    def __init__(self) -> None:
        self.seconds, self.memory = 0.0, 0
        #: its `value` is 1 while the function runs
        self.checking: Any = SimpleNamespace(value=0)
        signal.signal(signal.SIGPROF, self._stop)

    def _stop(self, number: int, frame: Any) -> None:
        raise TooSlow

    def run(self, function: Callable[[], Any]) -> Any:
        """What the function gives; seconds and bytes add up until `reset`."""
        before = _forget_peak()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        size = _status("VmSize")
        if size:
            resource.setrlimit(resource.RLIMIT_AS, (size + BYTES + (64 << 20), hard))
        started = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        self.checking.value = 1
        try:
            return function()
        finally:
            self.checking.value = 0
            signal.setitimer(signal.ITIMER_PROF, 0)
            self.seconds = max(self.seconds, time.process_time() - started)
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
            self.memory = max(self.memory, _status("VmHWM") - before)

    def reset(self) -> None:
        self.seconds, self.memory = 0.0, 0


def _status(name: str) -> int:
    """Bytes, from Linux; 0 elsewhere."""
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return int(text.split(name + ":", 1)[1].split(None, 1)[0]) * 1024


def _forget_peak() -> int:
    """Forget the peak of the memory; what is in use now."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return _status("VmHWM")
    return _status("VmHWM")


def short(reason: str) -> str:
    """The class of a reason: without names and numbers."""
    reason = reason.replace("[ONNXRuntimeError] ", "").replace("This is an invalid model. ", "")
    reason = re.sub(r"'[^']*'|\[[^]]*\]|\"[^\"]*\"|\([^)]*\)", "…", reason)
    reason = re.sub(r"-?\d[\d.,e+-]*|\S*/\S+", "#", reason)
    return reason[:90]


#: Kinds of mutations and how often they are made.
KINDS: dict[str, int] = {
    "certificate: bytes": 3,
    "certificate: header": 8,
    "certificate: arrays": 10,
    "certificate: proof forged": 10,
    "certificate: parts swapped": 5,
    "certificate: claim made false": 12,
    "certificate: false and forged": 18,
    "certificate: asks for too much": 1,
    "onnx: bytes": 5,
    "onnx: fields": 18,
    **{f"onnx: {kind}": 8 for kind in networks.GRAPH},
    "onnx: asks for too much": 1,
}


class Judge:
    """Makes mutations of cases by their numbers, in a folder for the files."""

    def __init__(self, cases: list[Case], seed: int, folder: Path, only: str = ""):
        self.cases, self.seed, self.folder, self.meter = cases, seed, folder, Meter()
        self.path, self.file = folder / f"{os.getpid()}.cert", folder / f"{os.getpid()}.onnx"
        self.loaded: dict[int, Network] = {}
        self.kinds = [kind for kind, weight in KINDS.items() if only in kind for _ in range(weight)]

    def kind_of(self, number: int) -> str:
        """What kind of change the number stands for."""
        return self.kinds[np.random.default_rng([self.seed, number]).integers(len(self.kinds))]

    def outcome(self, number: int) -> Outcome:
        """The mutation of a number: always the same."""
        kind, rng = self.kind_of(number), np.random.default_rng([self.seed, number, 1])
        index = int(rng.integers(len(self.cases)))
        case = self.cases[index]
        self.meter.reset()
        for _ in range(10):
            try:
                with np.errstate(all="ignore"):
                    if kind.startswith("onnx"):
                        return self._network(rng, kind, case)
                    return self._certificate(rng, kind, index)
            except Skip:
                continue
        return Outcome(kind, "none", "rejected", "could not be made")

    # --- certificates -------------------------------------------------------------------------------------------------

    def _certificate(self, rng: np.random.Generator, kind: str, index: int) -> Outcome:
        case = self.cases[index]
        content, change = self._damaged(rng, kind, case)
        if index not in self.loaded:
            self.file.write_bytes(case.onnx)
            self.loaded[index] = load_network(self.file)
        outcome = Outcome(kind, change, "rejected", case=case.name, certificate=content, onnx=case.onnx)
        if kind.endswith("too much"):  # the claim is the same, or the same many times
            report = self._check(outcome, self.loaded[index])
            outcome.verdict = "accepted" if report is not None and report.accepted else outcome.verdict
            return outcome
        try:
            loose: Any = certificates.take_apart(content)
            claim: Claim | None = certificates.claim_in(loose, len(case.small.outputs))
            outcome.known_false = self._violated(claim, case) is not None
        except Exception:  # not to be understood without the checker
            claim = None
        report = self._check(outcome, self.loaded[index])
        if report is None or not report.accepted:
            return outcome
        outcome.verdict = "accepted"
        if claim is None:
            outcome.verdict, outcome.reason = "false", "accepted, but nobody else can read it"
        elif outcome.known_false:
            outcome.verdict, outcome.reason = "false", "a point of the region violates the claim"
        elif not _same_claim(report.certificate, claim, len(case.small.outputs)):
            outcome.verdict, outcome.reason = "false", "the checker reads another claim than is written"
        elif not claim.follows_from(case.claim):
            self._minimum(outcome, claim, case)
        return outcome

    def _damaged(self, rng: np.random.Generator, kind: str, case: Case) -> tuple[bytes, str]:
        if kind.endswith("bytes"):
            return networks.damage_bytes(rng, case.certificate)
        loose = certificates.take_apart(case.certificate)
        names = []
        if kind.endswith("header"):
            if rng.random() < 0.2:
                names.append(certificates.falsify(rng, loose, case))
            content, name = certificates.damage_header(rng, loose)
            return content, ", ".join([*names, name])
        if kind.endswith("too much"):
            names.append(grow_certificate(rng, loose))
        if "false" in kind:
            names.append(certificates.falsify(rng, loose, case))
        if kind.endswith("forged"):
            if not loose.header["trees"]:
                raise Skip
            names += [certificates.forge(rng, loose, case) for _ in range(int(rng.integers(1, 4)))]
        if kind.endswith("swapped"):
            same = [other for other in self.cases if other.onnx == case.onnx]
            other = same[rng.integers(len(same))] if rng.random() < 0.7 else self.cases[rng.integers(len(self.cases))]
            names.append(certificates.swap(rng, loose, certificates.take_apart(other.certificate)))
        if kind.endswith("arrays"):
            names += [certificates.change_array(rng, loose) for _ in range(int(rng.integers(1, 3)))]
        return loose.pack(rehash=rng.random() < 0.97), ", ".join(names)

    def _violated(self, claim: Claim, case: Case) -> Any:
        if claim.lower.shape != (case.small.inputs,) or claim.spec.shape[1:] != (len(case.small.outputs),):
            return None
        if not len(claim.offset) or claim.group < 1 or len(claim.offset) % claim.group:
            return None
        return case.small.violation(claim, case.edge)

    def _minimum(self, outcome: Outcome, claim: Claim, case: Case) -> None:
        """A claim that does not follow from the case's own: the least value decides."""
        key = ("least", *claim.key)
        if key not in case.small.known:
            try:
                case.small.known[key] = case.small.least(claim, 5.0)[1]
            except Unknown:
                case.small.known[key] = None
        point = case.small.known[key]
        if point is not None and case.small.violates(claim, point):
            outcome.verdict, outcome.reason = "false", "the least value of the claim is not positive"

    def _check(self, outcome: Outcome, network: Network) -> Any:
        """The checker's report; None if there is none, which the outcome then says."""
        self.path.write_bytes(outcome.certificate)
        report = self._within(outcome, lambda: check_file(self.path, network))
        if report is not None and not report.accepted:
            self._rejected(outcome, report.reason)
        return report

    def _rejected(self, outcome: Outcome, reason: str) -> None:
        """A reason that the checker gives, which may be a mistake of its own."""
        outcome.reason = short(reason)
        if "a mistake in lingraft" in reason:
            outcome.verdict, outcome.detail = "crash", reason
        if "not enough memory" in reason:
            outcome.verdict, outcome.detail = "memory", reason

    def _within(self, outcome: Outcome, function: Callable[[], Any], allowed: Any = ()) -> Any:
        try:
            return self.meter.run(function)
        except TooSlow:
            outcome.verdict, outcome.reason = "slow", f"more than {SECONDS:.0f} s"
        except MemoryError as error:
            outcome.verdict, outcome.reason, outcome.detail = "memory", "MemoryError", str(error)[:200]
        except allowed as error:
            self._rejected(outcome, str(error).split("cannot be checked: ", 1)[-1])
        except Exception as error:
            where = error.__traceback__
            while where is not None and where.tb_next is not None:
                where = where.tb_next
            place = f"{os.path.basename(where.tb_frame.f_code.co_filename)}:{where.tb_lineno}" if where else ""
            outcome.verdict, outcome.reason = "crash", f"{type(error).__name__} at {place}"
            outcome.detail = str(error)[:200]
        finally:
            outcome.seconds, outcome.memory = self.meter.seconds, self.meter.memory
            if outcome.memory > BYTES and outcome.verdict in ("rejected", "accepted"):
                outcome.verdict, outcome.reason = "memory", f"more than {BYTES >> 20} MiB"
        return None

    # --- networks -----------------------------------------------------------------------------------------------------

    def _network(self, rng: np.random.Generator, kind: str, case: Case) -> Outcome:
        if kind == "onnx: bytes":
            content, change = networks.damage_bytes(rng, case.onnx)
        elif kind == "onnx: fields":
            content, change = networks.damage_fields(rng, case.onnx)
        elif kind == "onnx: asks for too much":
            model = onnx.load_model_from_string(case.onnx)
            change = grow_network(rng, model)
            content = model.SerializeToString()
        else:
            content, change = networks.damage_graph(rng, case.onnx, kind.removeprefix("onnx: "))
        digest = hashlib.sha256(content).hexdigest()
        loose = certificates.take_apart(case.certificate)
        loose.header["model_sha256"] = digest
        outcome = Outcome(kind, change, "rejected", case=case.name, certificate=loose.pack(), onnx=content)
        self.file.write_bytes(content)
        network = self._within(outcome, lambda: load_network(self.file), LingraftError)
        if network is None:
            return outcome
        if kind.endswith("too much"):
            self._large(outcome, network)
            return outcome
        report = self._check(outcome, network)
        if outcome.bad:
            return outcome
        claims = [(outcome.certificate, case.claim)] if report.accepted else []
        points = _points(rng, case, network)
        self._probe(outcome, network, points, claims)
        if outcome.bad or not claims:  # without claims, the network overflows, or the like
            return outcome
        self._compare(outcome, network, claims)
        return outcome

    def _large(self, outcome: Outcome, network: Network) -> None:
        """A claim about a large network that may well be true; what counts is what it costs."""
        spec, offset = np.zeros((1, network.outputs)), np.full(1, 1e9)
        spec[0, :10] = 1.0
        box = {"lower": np.full(network.shape, -0.1), "upper": np.full(network.shape, 0.1)}
        outcome.certificate = encode(Certificate(network.sha256, constraints=(spec, offset), **box))
        report = self._check(outcome, network)
        outcome.verdict = "accepted" if report is not None and report.accepted else outcome.verdict

    def _probe(self, outcome: Outcome, network: Network, points: np.ndarray, claims: list[tuple[bytes, Claim]]) -> None:
        """Certificates of what the checker itself thinks of the outputs: at points, and in a small box around them."""
        count = network.outputs
        spec = np.concatenate([np.eye(count), -np.eye(count)])
        for radius in (0.0, 0.0, 0.05):
            point = points[len(claims) % len(points)] if radius == 0 else points[0]
            low, high = (side.reshape(network.shape) for side in (point - radius, point + radius))
            try:
                least = Bounds(network, inner(low).copy(), inner(high).copy()).margins(spec, np.zeros(2 * count))
            except LingraftError:
                continue
            if not np.isfinite(least).all() or not count:
                continue
            offset = np.nextafter(np.nextafter(-least, np.inf), np.inf) + 1e-12 * np.abs(least) + 1e-190
            probe = Certificate(network.sha256, constraints=(spec, offset), lower=low, upper=high)
            mine = Outcome(outcome.kind, outcome.change, "rejected", certificate=encode(probe))
            report = self._check(mine, network)
            if mine.bad:
                outcome.verdict, outcome.reason, outcome.detail = mine.verdict, mine.reason, mine.detail
            elif report.accepted:
                claim = Claim(
                    rational(low.reshape(-1)), rational(high.reshape(-1)), rational(spec), rational(offset), 1
                )
                claims.append((mine.certificate, claim))
            outcome.seconds, outcome.memory = self.meter.seconds, self.meter.memory

    def _compare(self, outcome: Outcome, network: Network, claims: list[tuple[bytes, Claim]]) -> None:
        """What onnxruntime, and rational numbers, say to claims that were accepted."""
        outcome.verdict, outcome.reason = "accepted", ""
        tried = [_inside(claim) for _, claim in claims]
        points = np.concatenate(tried)
        ends = np.cumsum([0, *map(len, tried)])
        try:
            outputs = [_Runtime(outcome.onnx, level).outputs(points, network.shape) for level in (0, 1)]
        except _Refused as error:
            outcome.verdict, outcome.reason = "refused elsewhere", short(str(error))
            outputs = []
        for i, (certificate, claim) in enumerate(claims):
            for values in outputs:
                wrong = _against(claim, values[ends[i] : ends[i + 1]].T, network, tried[i])
                if wrong:
                    self._false(outcome, certificate, "onnxruntime violates it", wrong)
                    return
        first = [
            np.clip(rational(some[0]), claim.lower, claim.upper) for some, (_, claim) in zip(tried, claims, strict=True)
        ]
        try:
            exact, rooted = outputs_at(outcome.onnx, np.array(first))
        except Unknown:
            return
        for i, (certificate, claim) in enumerate(claims):
            if len(exact) != claim.spec.shape[1]:
                self._false(outcome, certificate, "another number of outputs", str(len(exact)))
            elif (least := claim.value(exact[:, i : i + 1])[0]) <= (-DOUBT if rooted else 0):
                self._false(
                    outcome, certificate, "in rational numbers it is violated", f"a margin of {float(least):.1g}"
                )

    def _false(self, outcome: Outcome, certificate: bytes, reason: str, detail: str) -> None:
        outcome.verdict, outcome.reason, outcome.detail = "false", reason, detail
        outcome.certificate, outcome.known_false = certificate, True


def _against(claim: Claim, values: np.ndarray, network: Network, points: np.ndarray) -> str:
    """How float32 outputs (outputs, B) at points violate a claim by more than rounding; "" if they do not."""
    if len(values) != claim.spec.shape[1]:
        return f"{len(values)} outputs, not {claim.spec.shape[1]}"
    spec, offset = claim.spec.astype(float), claim.offset.astype(float)
    found = (spec @ values + offset[:, None]).reshape(-1, claim.group, values.shape[1]).max(1).min(0)
    for value, point in zip(found, points, strict=True):
        if value < 0:
            size = _largest_sum(network, point)
            # what overflows, or is lost below the smallest numbers, says nothing about real numbers
            if size < 1e30 and value < -(SINGLE * size * np.abs(spec).sum(1).max() + 1e-30):
                return f"a margin of {value:.1g}"
    return ""


def _inside(claim: Claim) -> np.ndarray:
    """Points (B, n) of a claim's region: the middle and, if it has any, others and corners."""
    low, high = claim.lower.astype(float), claim.upper.astype(float)
    if (low == high).all():
        return low[None]
    rng = np.random.default_rng(0)
    shares = np.concatenate([[np.full(len(low), 0.5)], rng.random((1, len(low))), rng.integers(0, 2, (2, len(low)))])
    return low + shares * (high - low)


class _Refused(Exception):
    """onnxruntime does not load or run a file."""


class _Runtime:
    def __init__(self, content: bytes, level: int):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        levels = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = levels.ORT_ENABLE_ALL if level else levels.ORT_DISABLE_ALL
        try:
            with redirect_stdout(None):
                self.session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise _Refused(f"load: {error}".replace("\n", " ")) from error

    def outputs(self, points: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Outputs (B, outputs) at points (B, n), in float64."""
        needed = self.session.get_inputs()
        types = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(uint8)": np.uint8, "tensor(int8)": np.int8,
                 "tensor(int32)": np.int32, "tensor(int64)": np.int64, "tensor(float16)": np.float16}  # fmt: skip
        if len(needed) != 1 or needed[0].type not in types:
            raise _Refused(f"inputs {[(v.name, v.type) for v in needed]}")
        found = []
        for point in points:
            try:
                with np.errstate(all="ignore"):
                    given = point.reshape(1, *shape).astype(types[needed[0].type])
                found.append(
                    np.asarray(self.session.run(None, {needed[0].name: given})[0], dtype=np.float64).reshape(-1)
                )
            except Exception as error:
                raise _Refused(f"run: {error}".replace("\n", " ")) from error
        return np.array(found)


def _points(rng: np.random.Generator, case: Case, network: Network) -> np.ndarray:
    """Points (B, n): of the case, if it still fits, and others; float32 numbers, the last ones whole."""
    count = int(np.prod(network.shape))
    points = rng.normal(0.5, 1, (2, count)).astype(np.float32)
    whole = rng.integers(0, 4, (1, count))
    if count == case.small.inputs:
        middle = ((case.claim.lower + case.claim.upper) / 2).astype(float)
        points = np.concatenate([middle[None].astype(np.float32), points])
    return np.concatenate([points, whole]).astype(np.float64)


def _largest_sum(network: Network, point: np.ndarray) -> float:
    """How large the sums in the network can be if nothing cancels: what rounding errors are relative to."""
    sizes: list[np.ndarray] = []
    for node in network.nodes:
        if isinstance(node, Input):
            sizes.append(np.abs(inner(point.reshape(network.shape))))
        elif isinstance(node, Site):
            size = sizes[node.inputs[0]]
            sizes.append((np.abs(node.bend) + np.abs(node.slope)) * size + np.abs(node.shift))
        else:
            sizes.append(node.magnitude(*[sizes[j] for j in node.inputs]) + np.abs(node.offset()))
    return float(max(size.max() for size in sizes if size.size))


def _same_claim(certificate: Any, claim: Claim, outputs: int) -> bool:
    """Whether the checker reports the claim that is written."""
    if certificate.label is not None:
        spec = -np.delete(np.eye(outputs), certificate.label, axis=0)
        spec[:, certificate.label] = 1
        offset = np.zeros(len(spec))
    else:
        spec, offset = certificate.constraints
    if certificate.image is not None:
        box, image, eps = None, certificate.image, certificate.eps
    else:
        box, image, eps = (certificate.lower, certificate.upper), np.zeros(0), 0.0
    seen = claim_of(image, eps, certificate.clip, box, spec, offset, certificate.group)
    return seen.key == claim.key
