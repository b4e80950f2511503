"""Certificates while verifying: written to a folder, checked by workers, and counted."""

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from lingraft.checker.format import Certificate, encode, read
from lingraft.checker.onnx_reader import load_network
from lingraft.errors import LingraftError
from lingraft.files import replacing
from lingraft.formats.certificate_writer import CertificateWriter
from lingraft.pool.here import Here
from lingraft.pool.opening import open_pool
from lingraft.pool.place import HERE, Place
from lingraft.pool.pool import Pool
from lingraft.solver.network import Network
from lingraft.solver.verifier import Result
from lingraft.work.check_work import CheckCertificates


@dataclass
class Tally:
    """Certificates so far: how many there are, how many were accepted, and by name why others were not, or are not."""

    certificates: int = 0
    checked: int = 0
    rejected: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return vars(self)


class Certifier:
    """Certificates about one ONNX file; into `folder` if there is one, and checked if `checks`.

    They are checked at once where `place` is this process. Elsewhere workers do it in the background of other work,
    until the context ends; `finish` waits for them.
    """

    def __init__(self, onnx: Path, folder: Path | None, checks: bool, place: Place = HERE):
        self.folder, self.tally = folder, Tally()
        self.refused: str | None = None
        self.checks: Pool | Here | None = None
        self.resources = ExitStack()
        try:
            self.network = load_network(onnx)
        except LingraftError as error:
            self.refused = str(error)
            return
        if checks:
            self.checks = self.resources.enter_context(open_pool(CheckCertificates(onnx), place, math.inf))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.resources.close()

    def add(self, name: str, claim: Certificate, result: Result, network: Network) -> None:
        """The certificate of a verified result about `network`, which is the file, or the file and largest rows."""
        try:
            if self.refused is not None:
                raise LingraftError(self.refused)
            checked = self.network
            if claim.group > 1:
                assert claim.constraints is not None
                checked = checked.with_largest(*claim.constraints, claim.group)
            certificate = CertificateWriter(network, checked).certificate(claim, result)
        except LingraftError as error:
            self.tally.missing[name] = str(error)
            return
        content = encode(certificate)
        if self.folder is not None:
            with replacing(self.folder / f"{name}.cert") as part:
                part.write_bytes(content)
        self._count(name, content)

    def known(self, name: str, claim: Certificate) -> bool:
        """Whether the folder has a certificate of this claim, which is then counted, or none can be had at all."""
        if self.refused is not None:
            self.tally.missing[name] = self.refused
            return True
        if self.folder is None or not (self.folder / f"{name}.cert").exists():
            return False
        try:
            certificate = read(self.folder / f"{name}.cert")
        except LingraftError:
            return False
        if certificate.model != self.network.sha256 or _claim(certificate) != _claim(claim):
            return False
        self._count(name, self.folder / f"{name}.cert")
        return True

    def finish(self) -> None:
        """Wait until all certificates are checked."""
        self._take(wait=True)

    def _count(self, name: str, certificate: Path | bytes) -> None:
        self.tally.certificates += 1
        if self.checks is not None:
            self.checks.add(name, lambda: certificate)
            self._take(wait=False)

    def _take(self, wait: bool) -> None:
        """Count the certificates that are checked by now, or all of them."""
        for name, reason in () if self.checks is None else self.checks.answers(wait):
            if reason is None:
                self.tally.checked += 1
            else:
                self.tally.rejected[name] = reason


def _claim(certificate: Certificate) -> Mapping[str, Any]:
    """What is claimed, without model and proof, comparable."""
    values = {name: getattr(certificate, name) for name in ("label", "group", "eps", "clip", "image", "lower", "upper")}
    values["constraints"] = certificate.constraints and [part.tolist() for part in certificate.constraints]
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}
