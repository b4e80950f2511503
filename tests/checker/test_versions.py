"""Certificates of earlier versions are still read and accepted; those in tests/fixtures are of lingraft 0.1.0."""

from pathlib import Path

import pytest

from lingraft.checker.check import check_file
from lingraft.checker.onnx_reader import load_network
from lingraft.checker.statement import in_words

FOLDER = Path(__file__).parent.parent / "fixtures" / "certificates"


@pytest.mark.parametrize("name", ["ball", "property", "tree"])
def test_version_0_1_0(name):
    network = load_network(FOLDER / "net.onnx")
    report = check_file(FOLDER / f"{name}.cert", network)
    assert report.accepted, report.reason
    certificate = report.certificate
    assert certificate.part is None
    assert bool(certificate.trees) == (name == "tree")
    text = "\n".join(in_words(certificate, network.outputs))
    assert ("does not say of how many" in text) == (name == "property")
