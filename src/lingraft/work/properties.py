"""Properties of ONNX files in VNN-LIB: one is decided here, with certificates of the boxes that were proven."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from lingraft.checker.format import Certificate, Part
from lingraft.device import resolve_device
from lingraft.errors import LingraftError
from lingraft.exit_codes import EXIT_CODES
from lingraft.formats.answer import Answer
from lingraft.formats.network_files import network_files
from lingraft.formats.onnx_network import OnnxNetwork
from lingraft.formats.vnnlib import Box
from lingraft.interruption import Interrupted, interrupted_after
from lingraft.progress import progress as show
from lingraft.solver.network import Network
from lingraft.solver.request import Limits
from lingraft.solver.verifier import Result
from lingraft.work.certify import Certifier, Tally
from lingraft.work.vnncomp.instance import Instance, inequalities
from lingraft.work.vnncomp.networks import Networks


@dataclass(frozen=True)
class PropertyVerdict:
    """The `answer` on a property of `boxes` boxes; `proven` of them are, and `certificates` counts theirs."""

    onnx: Path
    vnnlib: Path
    answer: Answer
    boxes: int
    proven: int
    certificates: Tally | None

    @property
    def exit_code(self) -> int:
        """What `lingraft verify` ends with: that of the answer, 1 if a certificate was rejected."""
        return 1 if self.certificates is not None and self.certificates.rejected else EXIT_CODES[self.answer.word]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        counts = {} if self.certificates is None else {"certificates": self.certificates.as_dict()}
        return {"onnx": str(self.onnx), "vnnlib": str(self.vnnlib), **self.answer.as_dict(), **counts}


def verify_property(
    onnx: str | Path,
    vnnlib: str | Path,
    *,
    timeout: float = 300.0,
    memory: float | None = None,
    double: bool = False,
    certificates: str | Path | None = None,
    check: bool = False,
    seed: int = 0,
    device: str = "cpu",
    progress: bool = True,
    started: float | None = None,
) -> PropertyVerdict:
    """Decide a property in VNN-LIB of a network in ONNX, with an answer of VNN-COMP: unsat, sat, unknown or timeout.

    `timeout` seconds are counted from `started` (time.monotonic(); default: now), with the time to read the files.
    Certificates, one for each box that was proven, are written to the folder `certificates` when the answer is known;
    `check` checks them. Those of a property with several boxes are named as the parts that they are. The other options
    are those of `lingraft.verify`.
    """
    started = time.monotonic() if started is None else started
    onnx, vnnlib = Path(onnx), Path(vnnlib)
    limits = Limits(timeout, memory, double, seed, prove=certificates is not None or check)
    try:
        with interrupted_after(max(timeout - (time.monotonic() - started), 1e-3)):
            instance = Networks(resolve_device(device)).instance(network_files(onnx), vnnlib)
    except Interrupted:
        late = Answer("timeout", time.monotonic() - started, reason="time", stage="reading")
        return PropertyVerdict(onnx, vnnlib, late, 0, 0, Tally() if limits.prove else None)
    network = instance.network
    if limits.prove and not (isinstance(network, OnnxNetwork) and len(network.input_shapes) == 1 and network.whole):
        raise LingraftError(
            "certificates are about one network with one input, and the only output of its file. Leave out"
            " certificates and check."
        )
    digest = _hash(vnnlib) if limits.prove else ""
    boxes = instance.property.boxes
    proofs: list[tuple[Box, Result, Network]] = []
    with show("verifying", len(boxes), shown=progress) as advance:
        answer = instance.answer(limits, started, advance, lambda *proof: proofs.append(proof))
    tally = None
    if limits.prove:
        with Certifier(onnx, None if certificates is None else Path(certificates), check) as certifier:
            _certify(certifier, vnnlib, digest, instance, proofs)
        tally = certifier.tally
    return PropertyVerdict(onnx, vnnlib, answer, len(boxes), len(proofs), tally)


def _hash(vnnlib: Path) -> str:
    """SHA-256 of a property's file, by which its certificates name it."""
    if not vnnlib.is_file():
        raise LingraftError(f"certificates name the property by its file, and {vnnlib} is none. Save it to a file.")
    return sha256(vnnlib.read_bytes()).hexdigest()


def _certify(
    certifier: Certifier,
    vnnlib: Path,
    digest: str,
    instance: Instance,
    proofs: Sequence[tuple[Box, Result, Network]],
) -> None:
    """Certificates of the boxes that were proven."""
    boxes = instance.property.boxes
    numbers = {id(box): number for number, box in enumerate(boxes, 1)}
    name = vnnlib.name.removesuffix(".gz").removesuffix(".vnnlib")
    for box, result, network in proofs:
        rows, shifts, longest = inequalities(box.unsafe)
        claim = Certificate("", constraints=(rows, shifts), group=longest, about={"property": vnnlib.name})
        claim.part = Part(digest, numbers[id(box)], len(boxes))
        claim.lower, claim.upper = (side.reshape(instance.network.input_shape) for side in (box.lower, box.upper))
        part = f"-box{claim.part.box}of{len(boxes)}" if len(boxes) > 1 else ""
        certifier.add(f"{name}{part}", claim, result, network)
