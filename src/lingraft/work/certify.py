"""Certificates while verifying: written to a folder, checked by workers, and counted."""

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import numpy as np

from lingraft.checker.format import Certificate, encode, read
from lingraft.checker.onnx_reader import load_network
from lingraft.data import is_known
from lingraft.errors import LingraftError
from lingraft.files import replacing
from lingraft.formats.certificate_writer import CertificateWriter, claim_of_image
from lingraft.formats.onnx_export import export_onnx
from lingraft.names import short_name
from lingraft.pool.here import Here
from lingraft.pool.opening import open_pool
from lingraft.pool.place import ANYWHERE, HERE, Place
from lingraft.pool.pool import Pool
from lingraft.solver.digest import SHORT, digest_question
from lingraft.solver.network import Network
from lingraft.solver.request import Request
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
        #: names of the certificates that were checked, accepted or not
        self.answered: set[str] = set()
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
        certificate = self._read(name)
        if self.folder is None or certificate is None or _claim(certificate) != _claim(claim):
            return False
        self._count(name, self.folder / f"{name}.cert")
        return True

    def taken(self, name: str, claim: Certificate) -> bool:
        """Whether the folder has under this name a certificate of another claim about the same file."""
        certificate = self._read(name)
        return certificate is not None and _claim(certificate) != _claim(claim)

    def finish(self) -> None:
        """Wait until all certificates are checked."""
        self._take(wait=True)

    def _read(self, name: str) -> Certificate | None:
        """The certificate of this name in the folder; None if there is none, or none about this ONNX file."""
        if self.refused is not None or self.folder is None or not (self.folder / f"{name}.cert").exists():
            return None
        try:
            certificate = read(self.folder / f"{name}.cert")
        except LingraftError:
            return None
        return certificate if certificate.model == self.network.sha256 else None

    def _count(self, name: str, certificate: Path | bytes) -> None:
        self.tally.certificates += 1
        if self.checks is not None:
            self.checks.add(name, lambda: certificate)
            self._take(wait=False)

    def _take(self, wait: bool) -> None:
        """Count the certificates that are checked by now, or all of them."""
        for name, reason in () if self.checks is None else self.checks.answers(wait):
            self.answered.add(name)
            if reason is None:
                self.tally.checked += 1
            else:
                self.tally.rejected[name] = reason


class ImageCertificates:
    """Certificates of the images of a request, about its model as exported to the same folder; a context.

    Without a `folder` they are checked and not kept. They are checked beside the workers of `place`, which need not
    wait for that.
    """

    def __init__(self, request: Request, data: str | None, folder: Path | None, checks: bool, place: Place):
        self.request, self.data, self.folder, self.checks = request, data, folder, checks
        self.resources = ExitStack()
        #: numbers of images, names of their certificates, verified results: until it is known what became of them
        self.open: list[tuple[int, str, Result]] = []
        #: names that were given → the digests of the questions whose they are
        self.names: dict[str, str] = {}
        onnx = (folder or Path(self.resources.enter_context(TemporaryDirectory()))) / "model.onnx"
        export_onnx(request.model, onnx, input_shape=request.images.shape[1:], images=request.images[:8])
        local = place if place.ray is None else ANYWHERE  # the files are here
        self.certifier = self.resources.enter_context(Certifier(onnx, folder, checks, local))
        self.tally = self.certifier.tally

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.resources.close()

    def has(self, i: int, result: Result) -> bool:
        """Whether an earlier verdict on image `i` needs no certificate, or has one in the folder."""
        if result.verdict != "verified":
            return True
        name, claim = self._claim(i, result)
        if not self.certifier.known(name, claim):
            return False
        self.open.append((i, name, result))
        return True

    def add(self, i: int, result: Result) -> dict[int, Result]:
        """Write the certificate of image `i` if it is verified, and have it checked; its proof is then given up.

        Gives the results by image, this or earlier ones, that say since this call what became of their certificates.
        """
        if result.verdict == "verified":
            name, claim = self._claim(i, result)
            self.certifier.add(name, claim, result, self.request.network)
            result.proof = None
            result.certificate = name not in self.tally.missing
            self.open.append((i, name, result))
        return self._settled()

    def finish(self) -> dict[int, Result]:
        """Wait until all are checked, and say in the results what became of theirs; gives those that say more now."""
        self.certifier.finish()
        return self._settled()

    def _settled(self) -> dict[int, Result]:
        changed: dict[int, Result] = {}
        left = []
        for i, name, result in self.open:
            before = result.proof_state
            result.certificate = name not in self.tally.missing
            if result.certificate and self.checks:
                if name not in self.certifier.answered:
                    left.append((i, name, result))
                    continue
                result.checked = name not in self.tally.rejected
            if result.proof_state != before:
                changed[i] = result
        self.open = left
        return changed

    def _claim(self, i: int, result: Result) -> tuple[str, Certificate]:
        """The name of the certificate of image `i`, which that of no other question has, and what it claims."""
        about: dict[str, Any] = {} if self.data is None else {"data": self.data}
        about |= {"split": "test"} if is_known(self.data) else {}
        about |= {"index": result.index}
        eps = self.request.eps
        radius = "" if eps is None else f"-eps{eps:.6g}".replace(" #", "-")
        name, claim = (
            f"{short_name(self.data or 'image')}-{result.index}{radius}",
            claim_of_image(self.request, i, about),
        )
        question = digest_question("", self.request.problem(i))  # all are about the same network
        if self.names.get(name, question) != question or self.certifier.taken(name, claim):
            name += f"-{question[:SHORT]}"
        self.names[name] = question
        return name, claim


def _claim(certificate: Certificate) -> Mapping[str, Any]:
    """What is claimed, without model and proof, comparable."""
    values = {name: getattr(certificate, name) for name in ("label", "group", "eps", "clip", "image", "lower", "upper")}
    values["constraints"] = certificate.constraints and [part.tolist() for part in certificate.constraints]
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}
