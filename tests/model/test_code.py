"""Networks that code of the user's own makes."""

import sys
from pathlib import Path

import pytest
import torch
from tests.oracles.own_files import write_code
from torch import nn

from lingraft import LingraftError
from lingraft.model.code import from_code, is_code, place_of


class Own(nn.Module):
    """A class at the top of a file."""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return write_code(tmp_path)


@pytest.mark.parametrize("name", ["mlp", "ready", "ResNet"])
def test_a_function_a_class_or_the_network_itself(code: Path, name: str) -> None:
    before = list(sys.path)
    model = from_code(f"{code}:{name}")
    assert model.eval()(torch.zeros(1, *((1, 8, 8) if name == "ResNet" else (6,)))).shape == (1, 2)
    assert sys.path == before


def test_a_module_that_can_be_imported() -> None:
    model = from_code("torch.nn:Identity")
    assert isinstance(model, nn.Identity)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "has no nothing. Its networks: ResNet"),
        ("needs", "without arguments: TypeError"),
        ("number", "is a int"),
        ("torch.zeros", "without arguments: TypeError"),
    ],
)
def test_what_makes_no_network(code: Path, name: str, message: str) -> None:
    with pytest.raises(LingraftError, match=message):
        from_code(f"{code}:{name}")


def test_code_that_fails_says_where(tmp_path: Path) -> None:
    for content, message in (
        ("1 / 0", "ZeroDivisionError"),
        ("import sys; sys.exit(3)", "SystemExit"),
        ("if", "Syntax"),
    ):
        (tmp_path / "bad.py").write_text(f"\n{content}\n")
        with pytest.raises(LingraftError, match=message):
            from_code(f"{tmp_path / 'bad.py'}:net")
    with pytest.raises(LingraftError, match="there is no file"):
        from_code(f"{tmp_path / 'none.py'}:net")
    with pytest.raises(LingraftError, match="Write the file and what makes it"):
        from_code("net.py")


def test_changed_code_is_run_anew_and_the_same_code_once(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(
        "from torch import nn\ncalls = []\ndef net():\n    calls.append(1)\n    return nn.Linear(2, len(calls))\n"
    )
    assert [from_code(f"{path}:net").out_features for _ in range(2)] == [1, 2]
    path.write_text("from torch import nn\nnet = nn.Linear(2, 7)\n")
    assert from_code(f"{path}:net").out_features == 7


def test_what_names_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert all(map(is_code, ["net.py:make", "a/b.py:Net.small", "package.module:Net", "net.py", "C:/a b/net.py:make"]))
    assert not any(map(is_code, ["runs/mine", "digits-cnn", "net.onnx", "mine.npz", "a/b:c", "x: y"]))
    Path("a:b").mkdir()
    assert not is_code("a:b")  # a folder that is there


def test_where_a_module_comes_from() -> None:
    place = place_of(Own())
    assert place is not None
    assert place.endswith(":Own")
    assert isinstance(from_code(place), nn.Module)

    class Local(nn.Module):
        pass

    assert place_of(Local()) is None
    assert place_of(nn.Linear(2, 2)) is None
    assert place_of(torch.fx.symbolic_trace(nn.Linear(2, 2))) is None
