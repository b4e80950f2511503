"""The notebook, executed in an empty folder as a reader would."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import lingraft

NOTEBOOK = Path(__file__).parents[2] / "examples" / "tour.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The folder it ran in, and the notebook with its outputs."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    folder = tmp_path_factory.mktemp("tour")
    notebook = nbformat.read(shutil.copy(NOTEBOOK, folder), as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3")
    client.execute(cwd=str(folder))
    return folder, notebook


def shown(notebook: Any, code: str) -> str:
    """All that the cell with this code shows, as text."""
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and code in cell.source]
    return "\n".join(
        output.get("text", "") + "\n".join(str(value) for value in output.get("data", {}).values())
        for output in cell.outputs
    )


def test_it_ends_with_checked_proofs(executed: tuple[Path, Any]):
    folder, notebook = executed
    proven = re.search(r"(\d+) of (\d+) proofs checked by the independent checker", shown(notebook, "certificates="))
    assert proven is not None
    assert proven[1] == proven[2] != "0"
    assert f"{proven[1]} of {proven[1]} certificates about tour/proofs/model.onnx accepted" in shown(
        notebook, "lingraft.check"
    )
    assert lingraft.check(folder / "tour" / "proofs", model=folder / "tour" / "proofs" / "model.onnx")
    assert (folder / "tour" / "results.csv").read_text().count("checked\n") == int(proven[1])


def test_results_are_tables_and_epochs_leave_a_line(executed: tuple[Path, Any]):
    _, notebook = executed
    assert "<table>" in shown(notebook, "before = ")
    assert re.findall(r"epoch (\d): loss", shown(notebook, "EarlyStopping(patience=3)"))[:3] == ["1", "1", "2"]
    assert "ImageSet(1,400 images of shape (1, 8, 8)" in shown(notebook, "digits = ")
    assert "image/png" in str([cell.get("outputs") for cell in notebook.cells if "barh" in cell.source])


def test_it_is_stored_without_outputs():
    assert '"outputs": []' in NOTEBOOK.read_text()
    assert '"output_type"' not in NOTEBOOK.read_text()
