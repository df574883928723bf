"""The tutorial: a notebook that every build runs, as a page and as a file with its outputs.

A cell is run as Jupyter would: what it prints, then the value of its last line, as HTML where it has a form for that.
"""

import ast
import contextlib
import io
import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parent.parent / "examples" / "tutorial.ipynb"
Cell = dict[str, Any]


def run(cells: list[Cell], names: dict[str, Any]) -> None:
    """Every cell of code, one after the other; outputs are put into the cells, in the notebook's own form."""
    count = 0
    for cell in cells:
        if cell["cell_type"] == "code":
            count += 1
            cell["execution_count"] = count
            cell["outputs"] = outputs_of("".join(cell["source"]), names, count)


def outputs_of(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    tree, said, value = ast.parse(source), io.StringIO(), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(tree, f"cell {count}", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), names)
    found: list[dict[str, Any]] = []
    if said.getvalue():
        found.append({"output_type": "stream", "name": "stdout", "text": said.getvalue()})
    if value is not None:
        data = {"text/plain": repr(value)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_()
        found.append({"output_type": "execute_result", "execution_count": count, "data": data, "metadata": {}})
    return found


def markdown(cells: list[Cell]) -> str:
    """The cells with their outputs, as a page."""
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "text/html" in data:
                parts.append(f'```{{raw}} html\n<div class="output">{data["text/html"]}</div>\n```')
            else:
                parts.append(f"```text\n{data['text/plain'].rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def write(docs: Path) -> None:
    """Run the notebook; the page goes to docs/tutorial.md, the file to docs/extra."""
    notebook, home = json.loads(NOTEBOOK.read_text()), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            run(notebook["cells"], {"__name__": "__main__"})
        finally:
            os.chdir(home)
    (docs / "extra").mkdir(exist_ok=True)
    (docs / "extra" / "tutorial.ipynb").write_text(json.dumps(notebook, indent=1))
    (docs / "tutorial.md").write_text(markdown(notebook["cells"]))
