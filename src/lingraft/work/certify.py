"""Certificates while verifying: written to a folder, checked on the fly, and counted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lingraft.checker.check import check
from lingraft.checker.format import Certificate, Rejected, encode, read
from lingraft.checker.onnx_reader import load_network
from lingraft.errors import LingraftError
from lingraft.files import replacing
from lingraft.formats.certificate_writer import CertificateWriter
from lingraft.solver.network import Network
from lingraft.solver.verifier import Result


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
    """Certificates about one ONNX file; into `folder` if there is one, and checked at once if `checks`."""

    def __init__(self, onnx: Path, folder: Path | None, checks: bool):
        self.folder, self.checks, self.tally = folder, checks, Tally()
        self.refused: str | None = None
        try:
            self.network = load_network(onnx)
        except LingraftError as error:
            self.refused = str(error)

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
        certificate.packed = len(content)
        if self.folder is not None:
            with replacing(self.folder / f"{name}.cert") as part:
                part.write_bytes(content)
        self._count(name, certificate)

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
        self._count(name, certificate)
        return True

    def _count(self, name: str, certificate: Certificate) -> None:
        self.tally.certificates += 1
        if self.checks:
            try:
                check(certificate, self.network)
                self.tally.checked += 1
            except Rejected as error:
                self.tally.rejected[name] = str(error)


def _claim(certificate: Certificate) -> Mapping[str, Any]:
    """What is claimed, without model and proof, comparable."""
    values = {name: getattr(certificate, name) for name in ("label", "group", "eps", "clip", "image", "lower", "upper")}
    values["constraints"] = certificate.constraints and [part.tolist() for part in certificate.constraints]
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}
