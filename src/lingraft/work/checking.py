"""Checking certificates against an ONNX file, and what they prove together; torch is not needed for it."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from numpy import concatenate

from lingraft.checker.check import Report, check_file
from lingraft.checker.coverage import Coverage, Question, by_property, of_boxes, question
from lingraft.checker.format import Certificate
from lingraft.checker.network import Network
from lingraft.checker.onnx_reader import network_of, read_network, weights_beside
from lingraft.checker.protobuf import OnnxGraph, read_graph
from lingraft.checker.regular_file import read_regular
from lingraft.checker.runtime import Runtime, installed
from lingraft.checker.statement import in_words, statement
from lingraft.errors import LingraftError
from lingraft.formats.vnnlib import read_vnnlib

#: How much is told of what a certificate says about itself.
TOLD = 8

#: Bytes of a property's file at most.
MAX_PROPERTY = 1 << 30


@dataclass(frozen=True)
class CheckedFile:
    """Whether the certificate in a file is accepted, else the `reason`; what is `proven` then, and in `words`.

    `points` of the region are those at which onnxruntime was seen to compute the same. `about` is what the certificate
    says about itself, which nobody has checked.
    """

    path: Path
    accepted: bool
    reason: str | None
    seconds: float = 0.0
    points: int = 0
    proven: dict[str, Any] | None = None
    words: list[str] = field(default_factory=list)
    about: dict[str, Any] | None = None
    certificate: Certificate | None = None

    def __repr__(self) -> str:
        return f"CheckedFile({str(self.path)!r}, {'accepted' if self.accepted else f'rejected: {self.reason}'})"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "certificate": str(self.path),
            "accepted": self.accepted,
            "reason": self.reason,
            "seconds": self.seconds,
            "onnxruntime_points": self.points,
            "proven": self.proven,
            "about": self.about,
        }


@dataclass(frozen=True)
class Checked:
    """What checking certificates about `model` gave.

    `properties` are those that the certificates say they are parts of; `compared` is the one of the file `vnnlib`.
    `unread` is what else was in the folders. `runtime`: whether onnxruntime could be asked.
    """

    model: Path
    sha256: str
    runtime: bool
    files: list[CheckedFile]
    properties: list[Coverage]
    unread: list[Path]
    vnnlib: Path | None = None
    compared: Coverage | None = None

    def __repr__(self) -> str:
        whole = "" if bool(self) == (self.accepted == len(self.files)) else ", but not every property is proven"
        return f"Checked({self.accepted} of {len(self.files)} certificates about {self.model} accepted{whole})"

    @property
    def accepted(self) -> int:
        """How many certificates are."""
        return sum(file.accepted for file in self.files)

    def __bool__(self) -> bool:
        """Whether every certificate is accepted, and every property that they are part of is proven."""
        whole = [*self.properties, *([] if self.compared is None else [self.compared])]
        return self.accepted == len(self.files) and all(coverage.complete for coverage in whole)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        compared = None if self.compared is None else {"file": str(self.vnnlib), **_as_dict(self.compared)}
        return {
            "model": str(self.model),
            "model_sha256": self.sha256,
            "compared_with_onnxruntime": self.runtime,
            "accepted": self.accepted,
            "certificates": len(self.files),
            "results": [file.as_dict() for file in self.files],
            "properties": [_as_dict(coverage) for coverage in self.properties],
            "vnnlib": compared,
            "unread": [str(path) for path in self.unread],
        }


def check(
    certificates: str | Path | Sequence[str | Path],
    *,
    model: str | Path,
    vnnlib: str | Path | None = None,
    seen: Callable[[CheckedFile], None] = lambda file: None,
) -> Checked:
    """Check certificates (*.cert, or folders of them) about the ONNX file `model`, without trusting who wrote them.

    All bounds are derived again from the network and the certificate, with rounding errors accounted for. Where
    onnxruntime is installed, the network must also compute what that does, at points of the region. With `vnnlib`, they
    are compared with all boxes of that property. What is returned is true only if everything that was named is
    accepted and every property is proven. `seen` is called with each file when it is done.
    """
    content = read_network(Path(model))
    beside = weights_beside(model)
    network = network_of(content, str(model), beside)
    runtime = Runtime(content, beside.contents) if installed() else None
    boxes = None if vnnlib is None else _boxes(Path(vnnlib), network, _names(read_graph(content, beside)))
    named = [certificates] if isinstance(certificates, str | Path) else certificates
    found, unread = _files([Path(path) for path in named])
    files = []
    for path, problem in found:
        files.append(_checked(path, problem, network, runtime))
        seen(files[-1])
    read = [(file.certificate, file.accepted) for file in files if file.certificate is not None]
    compared = None if boxes is None else of_boxes(*boxes, [certificate for certificate, accepted in read if accepted])
    return Checked(
        Path(model),
        network.sha256,
        runtime is not None,
        files,
        by_property(read),
        unread,
        None if vnnlib is None else Path(vnnlib),
        compared,
    )


def _files(paths: list[Path]) -> tuple[list[tuple[Path, str]], list[Path]]:
    """All files to check, those and folders that cannot be with the reason, and what else is in the folders."""
    found, unread = list[tuple[Path, str]](), list[Path]()
    for path in paths:
        try:
            inside = sorted(path.iterdir()) if path.is_dir() else None
        except OSError as error:
            found.append((path, f"the folder cannot be read: {error.strerror}"))
            continue
        if inside is None:
            problem = "" if path.suffix == ".cert" else "it is not checked: its name does not end in .cert"
            found.append((path, problem if os.path.lexists(path) else "there is no such file or folder"))
            continue
        here = [file for file in inside if file.suffix == ".cert"]
        found += [(file, "") for file in here] or [(path, "there are no certificates (*.cert) in this folder")]
        unread += [file for file in inside if file.suffix != ".cert"]
    return found, unread


def _checked(path: Path, problem: str, network: Network, runtime: Runtime | None) -> CheckedFile:
    if problem:
        return CheckedFile(path, False, problem)
    report: Report = check_file(path, network, runtime)
    certificate, proven, words = report.certificate, None, list[str]()
    if report.accepted and certificate is not None:
        proven, words = statement(certificate, network.outputs), in_words(certificate, network.outputs)
    return CheckedFile(
        path,
        report.accepted,
        report.reason or None,
        round(report.seconds, 4),
        report.points,
        proven,
        words,
        None if certificate is None else _about(certificate),
        certificate,
    )


def _about(certificate: Certificate) -> dict[str, Any]:
    """What a certificate says about where it came from, as far as that is short and simple."""
    plain = {name[:40]: value for name, value in certificate.about.items() if isinstance(value, str | int | float)}
    return {name: str(value)[:100] for name, value in list(plain.items())[:TOLD]}


def _names(graph: OnnxGraph) -> tuple[str, str]:
    """What input and output are called in an ONNX file that was read, which has one of each."""
    return next(name for name in graph.inputs if name not in graph.constants), graph.outputs[0]


def _boxes(vnnlib: Path, network: Network, names: tuple[str, str]) -> tuple[str, list[Question]]:
    """The hash of a property's file, and its boxes as the reader of the verifier understands them.

    `names` are those of the input and the output in the ONNX file.
    """
    try:
        digest = hashlib.sha256(read_regular(vnnlib, MAX_PROPERTY)).hexdigest()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise LingraftError(f"cannot read {vnnlib}: {reason}. Check the path of the property.") from error
    asked = [
        question(
            box.lower,
            box.upper,
            [concatenate([part.coefficients, part.constants[:, None]], axis=1) for part in box.unsafe],
        )
        for box in read_vnnlib(vnnlib, prod(network.shape), network.outputs, names).boxes
    ]
    return digest, asked


def _as_dict(coverage: Coverage) -> dict[str, Any]:
    return {
        "property_sha256": coverage.property_sha256,
        "boxes": coverage.boxes,
        "boxes_proven": sorted(coverage.proven),
        "proven": coverage.complete,
        "problem": coverage.problem or None,
    }
