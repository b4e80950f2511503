"""`lingraft check`: accepts, rejects with the reason, and starts without torch."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from lingraft.certificates.format import Certificate, encode
from lingraft.certificates.onnx_reader import load_network
from lingraft.interop.onnx_export import export_onnx


def lingraft(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "lingraft", *map(str, arguments)], capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A network whose first output is the larger one by far, a claim that is true and one that is false."""
    path = tmp_path_factory.mktemp("certificates")
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    with torch.no_grad():
        model[2].bias.copy_(torch.tensor([5.0, -5.0]))
    export_onnx(model, path / "net.onnx", input_shape=(2,))
    network = load_network(path / "net.onnx")
    for label, name in ((0, "true"), (1, "false")):
        image = np.array([0.5, 0.25], np.float32)
        claim = Certificate(network.sha256, label=label, image=image, eps=0.1, clip=(0.0, 1.0), about={"index": 3})
        (path / f"{name}.cert").write_bytes(encode(claim))
    (path / "damaged.cert").write_bytes((path / "true.cert").read_bytes()[:-1])
    return path


def test_a_true_claim_is_accepted(folder):
    done = lingraft("check", folder / "true.cert", "--model", folder / "net.onnx")
    assert done.returncode == 0, done.stderr
    assert "accepted" in done.stdout
    assert "output 0 is the largest within 0.1 of the image" in done.stdout
    assert "1 of 1 accepted" in done.stdout


def test_all_must_be_accepted_and_reasons_are_given(folder):
    done = lingraft("check", folder, "--model", folder / "net.onnx", "--json")
    assert done.returncode == 1
    content = json.loads(done.stdout)
    assert content["accepted"] == 1
    reasons = {Path(r["certificate"]).stem: r["reason"] for r in content["results"]}
    assert reasons["true"] is None
    assert "default bound" in reasons["false"]
    assert "damaged" in reasons["damaged"]


def test_missing_files_and_other_networks(folder, tmp_path):
    done = lingraft("check", folder / "true.cert", "--model", tmp_path / "none.onnx")
    assert done.returncode == 1
    assert "cannot read" in done.stderr
    assert "Traceback" not in done.stderr
    export_onnx(nn.Linear(2, 2), tmp_path / "other.onnx", input_shape=(2,))
    done = lingraft("check", folder / "true.cert", "--model", tmp_path / "other.onnx")
    assert done.returncode == 1
    assert "another model" in done.stdout
    assert lingraft("check", tmp_path, "--model", tmp_path / "other.onnx").returncode == 1


def test_torch_is_not_loaded(folder):
    code = (
        "import sys; from lingraft.cli import app;"
        f"app(['check', {str(folder / 'true.cert')!r}, '--model', {str(folder / 'net.onnx')!r}], standalone_mode=False);"
        "print([m for m in ('torch', 'onnx', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip().endswith("[]"), done.stderr


def test_properties_of_onnx_files(folder, tmp_path):
    """`lingraft verify --onnx --vnnlib --certificates --check`, with a property that one of two inequalities holds."""
    head = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
    boxes = "".join(f"(assert (>= X_{i} 0))\n(assert (<= X_{i} 1))\n" for i in range(2))
    (tmp_path / "one.vnnlib").write_text(head + boxes + "(assert (<= Y_0 Y_1))\n")
    (tmp_path / "two.vnnlib").write_text(
        head + boxes + "(assert (<= Y_0 3.5))\n(assert (>= Y_0 Y_1))\n(assert (<= Y_0 2.5))\n"
    )
    for name in ("one", "two"):
        options = ["--certificates", tmp_path / "proofs", "--check", "--timeout", "60"]
        done = lingraft("verify", "--onnx", folder / "net.onnx", "--vnnlib", tmp_path / f"{name}.vnnlib", *options)
        assert done.stdout == "unsat\n", done.stdout + done.stderr
        assert done.returncode == 0
        assert "1 certificates of 1 boxes, 1 checked" in done.stderr
    done = lingraft("check", tmp_path / "proofs", "--model", folder / "net.onnx")
    assert "2 of 2 accepted" in done.stdout


def test_runs(tmp_path):
    """`lingraft verify RUN --check`: counts, a second time without verifying, and `lingraft check` agrees."""
    from lingraft import zoo
    from lingraft.data import load
    from lingraft.runs import ModelDescription, Run

    torch.manual_seed(0)
    model, data = zoo.build("digits-cnn"), load("digits", "train")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for index in torch.randperm(len(data)).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data.pixels(index)), data.labels[index]).backward()
        optimizer.step()
    run = Run(tmp_path / "run")
    run.write_description(
        ModelDescription(architecture="digits-cnn", input_shape=(1, 8, 8), classes=10, data="digits", eps=0.02)
    )
    run.save_weights(model)
    command = ["verify", run.path, "--images", "6", "--timeout", "60", "--workers", "0", "--check", "--json"]
    first = json.loads(lingraft(*command).stdout)
    assert first["verified"] == first["certificates"]["certificates"] == first["certificates"]["checked"] > 0
    assert not first["certificates"]["missing"]
    again = json.loads(lingraft(*command).stdout)
    assert again["certificates"] == first["certificates"]
    folder = run.path / "certificates"
    done = lingraft("check", folder, "--model", folder / "model.onnx")
    assert done.returncode == 0
    assert f"{first['verified']} of {first['verified']} accepted" in done.stdout
    assert len((run.path / "verdicts.jsonl").read_text().splitlines()) == 6
