"""examples/notebook.ipynb runs, and shows a table and a curve."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook.ipynb"


def test_the_notebook_runs_and_shows_the_run(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code"), "it is stored without outputs"
    NotebookClient(notebook, timeout=200, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    nbformat.validate(notebook)
    task, scored, trained, plotted, worst = (cell.outputs for cell in notebook.cells if cell.cell_type == "code")
    assert task == []
    assert scored[0].data["text/plain"] == "[1.0, 0.0]"
    progress, result = trained
    html, text = progress.data["text/html"], progress.data["text/plain"]
    assert html.count("<svg") == 1 and html.count("<circle") == 2  # before and after the training
    assert "<td>solved_rate</td>" in html and "solved_rate" in text and "●" in text
    assert "step      8/8" in text and "final     solved" in text
    assert "<td>python.add</td>" in result.data["text/html"]
    assert plotted[0].output_type == worst[0].output_type == "execute_result"
