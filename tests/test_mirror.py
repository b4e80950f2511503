"""Tests stand where the source stands: src/lingraft/a/b.py is tested in tests/a/test_b.py, or the list below says where."""

import ast
from pathlib import Path

import lingraft

SOURCE, TESTS = Path(lingraft.__file__).parent, Path(__file__).parent
#: Modules with at most so many lines of code may do without: what uses them tests them.
SMALL = 40

#: What is tested along with something else, because there is no other way to see what it does; a folder: all of it.
TESTED_ELSEWHERE = {
    "checker/clip.py": "checker/test_rounding.py",
    "checker/collapse.py": "checker/test_bounds.py",
    "checker/dual.py": "checker/test_rounding.py",
    "checker/facets.py": "checker/test_rounding.py",
    "checker/rows.py": "checker/test_rounding.py",
    "checker/tree.py": "checker/test_check.py",
    "cli/reproduce.py": "work/experiments/test_reproduce.py",
    "cli/score.py": "cli/test_graft.py",
    "formats/batch_norm_form.py": "formats/test_onnx_export.py",
    "formats/certificate_writer.py": "checker/test_proofs.py",
    "formats/graph_builder.py": "formats/test_onnx_export.py",
    "formats/onnx_layers.py": "formats/test_onnx_export.py",
    "formats/onnx_node.py": "formats/test_onnx_import.py",
    "formats/onnx_writer.py": "formats/test_onnx_export.py",
    "formats/runtime.py": "formats/test_onnx_import.py",
    "formats/vnnlib_syntax.py": "formats/test_vnnlib.py",
    "model/activations/record.py": "model/activations/test_soundness.py",
    "model/operations": "model/operations/test_operations.py",
    "model/line_relu.py": "model/test_grafted_activation.py",
    "model/zoo/architectures.py": "model/zoo/test_build.py",
    "pool/images.py": "pool/test_processes.py",
    "pool/problems.py": "pool/test_processes.py",
    "pool/ray/connection.py": "pool/ray/test_actors.py",
    "pool/worker.py": "pool/test_pool.py",
    "report/panels.py": "report/test_figures.py",
    "report/run_figures.py": "report/test_figures.py",
    "solver/crown.py": "solver/test_bounds.py",
    "solver/lowering": "model/operations/test_operations.py",
    "solver/proof.py": "checker/test_proofs.py",
    "training/differentiable/comparison.py": "training/differentiable/test_certify.py",
    "work/certify.py": "checker/test_proofs.py",
    "work/checking.py": "cli/test_check.py",
    "work/corners/study.py": "cli/test_corners.py",
    "work/environment.py": "cli/test_doctor.py",
    "work/evaluate.py": "cli/test_evaluate.py",
    "work/experiments/results.py": "work/experiments/test_reproduce.py",
    "work/experiments/tables.py": "work/experiments/test_reproduce.py",
    "work/properties.py": "cli/test_verify_onnx.py",
    "work/score.py": "cli/test_graft.py",
    "work/search.py": "cli/test_graft.py",
    "work/vnncomp/comparison.py": "cli/test_compare.py",
}


def lines_of_code(path: Path) -> int:
    """Lines with statements: no imports, documentation, comments or blank lines."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.stmt) or isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        inner = getattr(node, "body", None)  # the lines of what is inside are counted there
        lines |= set(range(node.lineno, (inner[0].lineno if isinstance(inner, list) else node.end_lineno + 1)))
    return len(lines)


def place(module: Path) -> Path:
    """Where the tests of a module belong; those of a package have its name."""
    parts = module.relative_to(SOURCE)
    name = (parts.parent.name or "lingraft") if parts.stem == "__init__" else parts.stem
    return TESTS / parts.parent / f"test_{name}.py"


def test_every_module_has_its_tests():
    missing = [
        str(found.parent if str(found.parent) in TESTED_ELSEWHERE else found)
        for path in sorted(SOURCE.rglob("*.py"))
        if (found := path.relative_to(SOURCE)) and lines_of_code(path) > SMALL and not place(path).exists()
    ]
    assert sorted(set(missing) - TESTED_ELSEWHERE.keys()) == [], "write these tests, or say where they are"
    assert sorted(TESTED_ELSEWHERE.keys() - set(missing)) == [], (
        "these are not there, are small, or have tests of their own"
    )


def test_the_list_is_short_and_names_what_is_there():
    assert len(TESTED_ELSEWHERE) < 42
    for module, test in TESTED_ELSEWHERE.items():
        assert (SOURCE / module).exists(), module
        assert (TESTS / test).is_file(), test
