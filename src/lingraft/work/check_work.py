"""Checking certificates as work for workers."""

from pathlib import Path

from lingraft.checker.check import check
from lingraft.checker.format import Rejected, decode, read
from lingraft.checker.onnx_reader import load_network
from lingraft.pool.work import Work


class CheckCertificates(Work[Path | bytes, str | None]):
    """Why certificates about one ONNX file, given as files or as their content, are rejected; None: accepted.

    Its processes step back behind those that verify, so they can work beside them, and have no limit of memory: a check
    that fails for want of it would be a rejection.

        with open_pool(CheckCertificates(onnx), place, math.inf) as checks:
            for i, result in verify_each(…):
                …
                checks.add(name, lambda: content)
                for name, reason in checks.answers(wait=False):  # those that are done by now
                    …
            for name, reason in checks.answers():  # the others
                …
    """

    niceness = 10

    def __init__(self, onnx: Path):
        self.onnx = onnx

    def prepare(self, memory: float) -> None:
        self.network = load_network(self.onnx)

    def answer(self, question: Path | bytes, seconds: float) -> str | None:
        try:
            check(decode(question) if isinstance(question, bytes) else read(question), self.network)
        except Rejected as error:
            return str(error) or "it is rejected"
        return None

    def failed(self, reason: str, seconds: float, error: str | None, stage: str) -> str:
        return f"it could not be checked: {error or reason}"
