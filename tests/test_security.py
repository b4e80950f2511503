"""The source does nothing by which a file could run code, write outside of its place, or reach a shell."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import lingraft
from lingraft import LingraftError
from lingraft.runs import Run

SOURCE = Path(lingraft.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

#: Messages between a process and the workers that it has started itself; see docs/security.md.
PICKLES = {
    "pool/worker.py",
    "pool/worker_process.py",
    "pool/processes.py",
    "pool/pool.py",
    "pool/server.py",
    "pool/problems.py",
    "pool/ray/actors.py",
}

#: Code that a user names: `--model net.py:make_net`.
CODE = {"model/code.py"}

#: Calls that are never right here, by the end of their name.
FORBIDDEN = {
    "eval": "runs code",
    "exec": "runs code",
    "__import__": "imports what a text says",
    "exec_module": "runs code",
    "torch.load": "unpickles",
    "yaml.load": "makes any object",
    "yaml.unsafe_load": "makes any object",
    "yaml.full_load": "makes any object",
    "marshal.loads": "makes code",
    "shelve.open": "unpickles",
    "os.system": "is a shell",
    "os.popen": "is a shell",
    "tempfile.mktemp": "names a file that another process may make first",
    "extractall": "writes where an archive says",
    "tarfile.extract": "writes where an archive says",
    "unpack_archive": "writes where an archive says",
}


def relative(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Every call in a file, and the dotted name of what is called."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


def offences(path: Path) -> Iterator[str]:
    for name, call in calls(path):
        where = f"{relative(path)}:{call.lineno}: {name}"
        for forbidden, why in FORBIDDEN.items():
            # model.eval() is a method; the builtin has no dot
            if relative(path) in CODE and forbidden == "exec_module":
                continue
            if name == forbidden or (forbidden not in ("eval", "exec") and name.endswith(f".{forbidden}")):
                yield f"{where} {why}"
        options = {option.arg: ast.unparse(option.value) for option in call.keywords}
        if options.get("shell", "False") != "False":
            yield f"{where} is a shell"
        if options.get("allow_pickle", "False") != "False" or (name == "np.load" and "allow_pickle" not in options):
            yield f"{where} allows pickles, or does not say that it forbids them"
        if name == "Environment" and "autoescape" not in options:
            yield f"{where} writes HTML without escaping"


def test_no_call_that_runs_what_a_file_says() -> None:
    assert [offence for path in FILES for offence in offences(path)] == []


@pytest.mark.parametrize(
    "line",
    ["eval(x)", "torch.load(f)", "yaml.load(t)", "np.load(p)", "np.load(p, allow_pickle=True)", "run(c, shell=True)",
     "tar.extractall(d)", "Environment(loader=l)", "spec.loader.exec_module(m)"],
)  # fmt: skip
def test_offences_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path)
    (tmp_path / "x.py").write_text(f"model.eval()\nnp.load(p, allow_pickle=False)\n{line}\n")
    (found,) = offences(tmp_path / "x.py")
    assert found.startswith("x.py:3: ")


def test_pickles_only_between_our_own_processes() -> None:
    pickling = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    assert {relative(path) for path in FILES if imports(path) & pickling} == PICKLES


def test_files_that_a_run_names_are_in_it(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    assert run.inside("witnesses/a.safetensors") == tmp_path / "run" / "witnesses" / "a.safetensors"
    for name in ("../a", "/etc/passwd", "witnesses/../../a"):
        with pytest.raises(LingraftError, match="outside"):
            run.inside(name)


def test_the_checker_shares_no_code_with_what_it_checks() -> None:
    for path in (SOURCE / "certificates").glob("*.py"):
        assert not imports(path) & {"torch", "onnx", "onnxruntime", "pickle"}, path.name
