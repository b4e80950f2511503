"""Each example runs from an empty folder, as `python examples/NAME.py` would."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))

#: What each prints, and the files it says it writes.
EXPECTED = {
    "graft_your_model.py": (["runs/example ", "runs/example-grafted", "report.html"], ["report.html"]),
    "verify_onnx.py": (["image 0:", "accepted"], ["net.onnx", "proofs"]),
    "which_neurons.py": (["none", "at random", "both, as in the paper"], []),
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(example)])
    runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr().out
    texts, files = EXPECTED[example.name]
    assert all(text in printed for text in texts)
    assert all((tmp_path / name).exists() for name in files)
    assert "rejected" not in printed
    if example.name == "which_neurons.py":
        unstable = {line[:24].strip(): float(line.split()[-1][:-1]) for line in printed.splitlines() if "%" in line}
        assert unstable["both, as in the paper"] < unstable["at random"] < unstable["none"]
