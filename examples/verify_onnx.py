"""An ONNX file, verified, with certificates that a second program checks: python examples/verify_onnx.py [NET.onnx]

Without an argument it makes a small network for digits first. Writes certificates to proofs/.
"""

import sys
from pathlib import Path

import torch
from torch import nn

import lingraft
from lingraft.checker.check import check_file
from lingraft.checker.onnx_reader import load_network
from lingraft.data import load
from lingraft.formats.certificate_writer import claim_of_image
from lingraft.pool.images import verify_each
from lingraft.pool.place import HERE
from lingraft.solver.request import Limits, Request
from lingraft.work.certify import Certifier

EPS = 0.03


def make_network(path: Path) -> None:
    """Train a small network for a few seconds and write it as ONNX."""
    torch.manual_seed(0)
    layers = nn.Flatten(), nn.Linear(64, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 10)
    data = load("digits", "train")
    model = lingraft.train(nn.Sequential(*layers), data, eps=EPS, epochs=12, batch=50, run="runs/onnx-example")
    lingraft.export_onnx(model, path, input_shape=(1, 8, 8))


def main(path: Path | None) -> None:
    if path is None:
        path = Path("net.onnx")
        make_network(path)
    network = lingraft.load_onnx(path)
    test = load("digits", "test").take(8)
    request = Request(network, test.pixels(), test.labels, eps=EPS)
    certifier = Certifier(path, Path("proofs"), checks=False)
    for i, result in verify_each(request, Limits(timeout=5, prove=True), HERE):
        print(f"image {i}: {result.verdict} by {result.stage} in {result.seconds:.2f} s")
        if result.verdict == "verified":
            claim = claim_of_image(request, i, {"data": "digits", "index": i})
            certifier.add(f"digits-{i}", claim, result, request.network)
    # From here on nothing of the verifier is used: the checker reads the ONNX file itself, with NumPy.
    checked = load_network(path)
    for proof in sorted(Path("proofs").glob("*.cert")):
        report = check_file(proof, checked)
        print(f"{proof}: {'accepted' if report.accepted else f'rejected, {report.reason}'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
