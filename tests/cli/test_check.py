"""`lingraft check`: accepts, rejects with the reason, and starts without torch."""

import json
import os
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from lingraft.checker.format import Certificate, Part, encode
from lingraft.checker.onnx_reader import load_network
from lingraft.cli import app
from lingraft.formats.onnx_export import export_onnx
from lingraft.runs import Run

pytestmark = pytest.mark.slow


def lingraft(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "lingraft", *map(str, arguments)], capture_output=True, text=True)


def here(*arguments: object):
    """`lingraft` in this process."""
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert isinstance(done.exception, SystemExit | None), done.exception
    return done


def check(*arguments: object):
    return here("check", *arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A network whose first output is the larger one by far, a claim that is true and one that is false."""
    path = tmp_path_factory.mktemp("certificates")
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    with torch.no_grad():
        model[0].weight.fill_(1.0)  # all neurons are on, or their weights would not matter
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
    assert "for all x with |x − image| ≤ 0.1 in every input, cut to 0.0 ≤ x ≤ 1.0" in done.stdout
    assert "output 0 exceeds every other: y0 > y1" in done.stdout
    assert "1 of 1 accepted" in done.stdout


def test_all_must_be_accepted_and_reasons_are_given(folder):
    done = lingraft("check", folder, "--model", folder / "net.onnx", "--json")
    assert done.returncode == 1
    content = json.loads(done.stdout)
    assert content["accepted"] == 1
    reasons = {Path(r["certificate"]).stem: r["reason"] for r in content["results"]}
    assert reasons["true"] is None
    assert "default bound" in reasons["false"]
    assert "length" in reasons["damaged"]
    proven = {Path(r["certificate"]).stem: r["proven"] for r in content["results"]}
    assert proven["true"]["holds"] == ["y0 > y1"]
    assert proven["true"]["region"]["center"] == [0.5, 0.25]
    assert proven["true"]["model_sha256"] == content["model_sha256"] == load_network(folder / "net.onnx").sha256
    assert proven["false"] is proven["damaged"] is None


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


@pytest.mark.parametrize("runtime", [True, False])
def test_torch_is_not_loaded_and_without_onnxruntime_it_is_said(folder, runtime):
    block = "" if runtime else "sys.modules['onnxruntime'] = None; "
    code = (
        f"import sys; {block}from lingraft.cli import app;"
        f"app(['check', {str(folder / 'true.cert')!r}, '--model', {str(folder / 'net.onnx')!r}], standalone_mode=False);"
        "print([m for m in ('torch', 'onnx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip().endswith("[]"), done.stderr
    assert "1 of 1 accepted" in done.stdout
    assert ("onnxruntime computes the same from the file, at" in done.stdout) == runtime
    assert ("onnxruntime is not installed" in done.stdout) == (not runtime)


def test_what_does_not_run_as_it_was_read_is_rejected(folder, monkeypatch):
    """A reader that misread the file: nothing but the comparison notices."""
    misread = load_network(folder / "net.onnx")
    misread.nodes[-1].weight = misread.nodes[-1].weight + 1e-4
    monkeypatch.setattr("lingraft.work.checking.network_of", lambda content, name, beside: misread)
    done = check(folder / "true.cert", "--model", folder / "net.onnx")
    assert done.exit_code == 1
    assert "onnxruntime computes another function" in done.output


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
        done = here("verify", "--onnx", folder / "net.onnx", "--vnnlib", tmp_path / f"{name}.vnnlib", *options)
        assert done.stdout == "unsat\n", done.stdout + done.stderr
        assert done.exit_code == 0
        assert "1 certificates of 1 boxes, 1 checked" in done.stderr
    done = lingraft("check", tmp_path / "proofs", "--model", folder / "net.onnx")
    assert "2 of 2 accepted" in done.stdout


HEAD = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))


def two_boxes(last: float) -> str:
    """A property of the network: Y_0 > Y_1 and Y_0 > 0 in one box, and in another that ends at (last, last)."""
    parts = [f"(and {' '.join(f'(>= X_{i} {a}) (<= X_{i} {b})' for i in range(2))})" for a, b in ((0, 1), (1, last))]
    return HEAD + f"(assert (or {' '.join(parts)}))\n(assert (or (<= Y_0 Y_1) (<= Y_0 0)))\n"


@pytest.fixture(scope="module")
def parts(folder, tmp_path_factory) -> Path:
    """A property whose boxes are both proven, `all`, and one with a counterexample in its second box, `some`."""
    path = tmp_path_factory.mktemp("parts")
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(2)), model[0].bias.zero_()
        model[2].weight.copy_(torch.tensor([[-1.0, -1.0], [1.0, 1.0]])), model[2].bias.copy_(torch.tensor([5.0, -5.0]))
    export_onnx(model, path / "net.onnx", input_shape=(2,))
    for name, last, word in (("all", 2, "unsat"), ("some", 9, "sat")):
        (path / f"{name}.vnnlib").write_text(two_boxes(last))
        options = ["--certificates", str(path / name), "--check", "--timeout", "60"]
        files = ["--onnx", str(path / "net.onnx"), "--vnnlib", str(path / f"{name}.vnnlib")]
        done = CliRunner().invoke(app, ["verify", *files, *options])
        assert done.stdout.startswith(word), done.stdout
    return path


def test_a_certificate_of_a_part_is_named_and_counted_as_one(parts):
    """The first box is proven and the second is not: nothing may look like a proof of the property."""
    assert [file.name for file in (parts / "some").iterdir()] == ["some-box1of2.cert"]
    done = check(parts / "some", "--model", parts / "net.onnx")
    assert done.exit_code == 1
    assert "PART: box 1 of 2" in done.stdout
    assert "1 of 2 boxes proven (not 2): NOT proven" in done.stdout
    assert "1 of 1 accepted" in done.stdout


def test_a_property_is_proven_if_all_its_boxes_are(parts):
    names = ["all-box1of2.cert", "all-box2of2.cert"]
    assert sorted(file.name for file in (parts / "all").iterdir()) == names
    done = check(parts / "all", "--model", parts / "net.onnx", "--json")
    content = json.loads(done.stdout)
    assert done.exit_code == 0
    (found,) = content["properties"]
    assert found["proven"]
    assert found["boxes_proven"] == [1, 2]
    assert [r["proven"]["part"]["box"] for r in content["results"]] == [1, 2]
    assert content["results"][0]["proven"]["holds"] == ["y0 − y1 > 0", "y0 > 0"]
    assert {r["proven"]["part"]["property_sha256"] for r in content["results"]} == {found["property_sha256"]}
    for name in names:
        assert check(parts / "all" / name, "--model", parts / "net.onnx").exit_code == 1


def test_boxes_and_constraints_are_compared_with_the_property(parts, tmp_path):
    model = ["--model", parts / "net.onnx"]
    assert check(parts / "all", *model, "--vnnlib", parts / "all.vnnlib").exit_code == 0
    text = (parts / "all.vnnlib").read_text()
    changes = [("(<= X_0 2)", "(<= X_0 2.000001)"), ("(<= Y_0 0)", "(<= Y_0 0.000001)"), ("(or (<= Y_0 Y_1)", "(or (<= Y_1 Y_0)")]  # fmt: skip
    for old, new in changes:
        (tmp_path / "other.vnnlib").write_text(text.replace(old, new))
        done = check(parts / "all", *model, "--vnnlib", tmp_path / "other.vnnlib")
        assert done.exit_code == 1
        assert "accepted certificates are not about a box of it" in done.stdout
        assert "of 2 boxes proven" in done.stdout
    done = check(parts / "some", *model, "--vnnlib", parts / "some.vnnlib", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["vnnlib"]["boxes_proven"] == [1]


def test_a_certificate_that_lies_about_its_part_is_found_out_by_the_property(parts, tmp_path):
    from lingraft.checker.format import read

    certificate = read(parts / "some" / "some-box1of2.cert")
    certificate.part = Part(certificate.part.property_sha256, 1, 1)
    (tmp_path / "some.cert").write_bytes(encode(certificate))
    assert check(tmp_path, "--model", parts / "net.onnx").exit_code == 0  # it says so, and proves its box
    done = check(tmp_path, "--model", parts / "net.onnx", "--vnnlib", parts / "some.vnnlib")
    assert done.exit_code == 1
    assert "1 of 2 boxes proven (not 2): NOT proven" in done.stdout
    honest = parts / "some" / "some-box1of2.cert"
    done = check(tmp_path, honest, "--model", parts / "net.onnx")
    assert "differ in how many boxes" in done.stdout
    assert done.exit_code == 1


def test_every_file_that_is_named_is_checked_or_reported(folder, tmp_path):
    for name in ("empty", "named.cert"):
        (tmp_path / name).mkdir()
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "true.cert").write_bytes((folder / "true.cert").read_bytes())
    (tmp_path / "folder" / "other.CERTIFICATE").write_text("text")
    wrong = [tmp_path / "a.txt", tmp_path / "empty", tmp_path / "none.cert", tmp_path / "named.cert"]
    for path in wrong:
        done = check(path, "--model", folder / "net.onnx")
        assert done.exit_code == 1
        assert f"rejected {path}" in done.stdout
    done = check(tmp_path / "none", "--model", folder / "net.onnx")
    assert "there is no such file or folder" in done.stdout
    done = check(*wrong, tmp_path / "folder", "--model", folder / "net.onnx")
    assert done.exit_code == 1
    assert "1 of 5 accepted" in done.stdout
    assert "other.CERTIFICATE (1 in all)" in done.stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_special_files_are_never_read(folder, tmp_path):
    os.mkfifo(tmp_path / "pipe.cert")
    (tmp_path / "folder.cert").mkdir()
    (tmp_path / "zero.cert").symlink_to("/dev/zero")
    (tmp_path / "loop.cert").symlink_to(tmp_path / "loop.cert")
    (tmp_path / "gone.cert").symlink_to(tmp_path / "gone")
    (tmp_path / "true.cert").write_bytes((folder / "true.cert").read_bytes())
    done = check(tmp_path, "--model", folder / "net.onnx", "--json")
    reasons = {Path(r["certificate"]).stem: r["reason"] for r in json.loads(done.stdout)["results"]}
    assert {name for name, reason in reasons.items() if "ordinary file" in (reason or "")} == {"pipe", "folder", "zero"}
    assert "cannot be read" in reasons["loop"]
    assert "cannot be read" in reasons["gone"]
    assert reasons["true"] is None
    for option in ("--model", "--vnnlib"):
        others = () if option == "--model" else ("--model", folder / "net.onnx")
        for path in (tmp_path / "pipe.cert", "/dev/zero", tmp_path, tmp_path / "gone"):
            done = lingraft("check", tmp_path / "true.cert", *others, option, path)
            assert done.returncode == 1
            assert f"cannot read {path}" in done.stderr


def visible(text: str) -> bool:
    """Nothing but line breaks moves the cursor, hides or turns around anything."""
    return all(c == "\n" or unicodedata.category(c)[0] not in "C" for c in text)


NASTY = "\x1b[2J\x1b]0;title\x07\u202e\u2066\u200b\ud800\x9b\r\naccepted"


def test_nothing_in_a_file_reaches_the_terminal_as_it_is(folder, tmp_path):
    network = load_network(folder / "net.onnx")
    image = np.array([0.5, 0.25], np.float32)
    claim = Certificate(
        network.sha256, label=0, image=image, eps=0.1, about={NASTY: NASTY, "property": NASTY, "box": 1}
    )
    (tmp_path / "good\x1b[2J\n\u202e.cert").write_bytes(encode(claim))
    content = encode(claim)
    for number, (old, new) in enumerate(
        [(b'"label"', b'"la\\u001b[2Jbel"'), (b'"name": "image"', b'"name": "\\u001b[2\\ud8"')]
    ):
        (tmp_path / f"bad{number}.cert").write_bytes(content.replace(old, new[: len(old)].ljust(len(old))))
    (tmp_path / "x\u202e\x07").write_text("")
    for path in (tmp_path, tmp_path / "none\x1b[2J.cert"):
        done = check(path, "--model", folder / "net.onnx")
        assert visible(done.stdout), done.stdout
        assert "\\x1b[2J" in done.stdout
    model = onnx.load(folder / "net.onnx")
    model.graph.node[0].op_type = model.graph.node[0].name = "Gone\x1b[2J\u202e\nfine"
    onnx.save(model, tmp_path / "net\x1b[2J\u202e.onnx")
    done = lingraft("check", tmp_path, "--model", tmp_path / "net\x1b[2J\u202e.onnx")
    assert visible(done.stderr), done.stderr
    assert "Gone\\x1b[2J\\u202e\\nfine" in done.stderr
    assert json.loads(check(tmp_path, "--model", folder / "net.onnx", "--json").stdout)["accepted"] == 1


def test_terminals_that_know_few_characters(folder):
    command = [sys.executable, "-m", "lingraft", "check", folder / "true.cert", "--model", folder / "net.onnx"]
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert r"for all x with |x \u2212 image| \u2264 0.1" in done.stdout


def test_runs(trained_run: Path, tmp_path: Path):
    """`lingraft verify RUN --check`: counts, a second time without verifying, and `lingraft check` agrees."""
    run = Run(shutil.copytree(trained_run, tmp_path / "run"))
    command = ["verify", run.path, "--images", "6", "--timeout", "60", "--workers", "0", "--check", "--json"]
    first = json.loads(here(*command).stdout)
    assert first["verified"] == first["certificates"]["certificates"] == first["certificates"]["checked"] > 0
    assert not first["certificates"]["missing"]
    again = json.loads(here(*command).stdout)
    assert again["certificates"] == first["certificates"]
    folder = run.path / "certificates"
    done = lingraft("check", folder, "--model", folder / "model.onnx")
    assert done.returncode == 0
    assert f"{first['verified']} of {first['verified']} accepted" in done.stdout
    assert len((run.path / "verdicts.jsonl").read_text().splitlines()) == 6
