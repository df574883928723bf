"""The pages on kinds of data, from the file to the report: all their code and all their commands run."""

import json
import re
import runpy
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import sparse
from sklearn.datasets import load_digits

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "kinds").glob("*.md"))

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture
def files(tmp_path, monkeypatch, little_training):
    """What the pages say that people have; little of it, and little training."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    table = runpy.run_path(str(ROOT / "examples" / "customers.py"))["customers"](120).drop(columns="kind")
    table.to_csv("customers.csv", index=False)
    table[:9].to_csv("new.csv", index=False)
    topics = ("the ship sails the sea to port", "bread and butter from the oven")
    lines = [json.dumps({"text": f"{topics[i % 2]} {'again ' * (i % 3)}number {i}"}) for i in range(40)]
    Path("texts.jsonl").write_text("\n".join(lines))
    group = np.arange(40) % 3
    np.save("emb.npy", (8 * np.eye(3, 12)[group] + rng.normal(size=(40, 12))).astype(np.float32))
    rates = np.array([[1.0, 5], [5, 1], [3, 3]])[np.arange(90) % 3].repeat(20, axis=1)
    sparse.save_npz("cells.npz", sparse.csr_matrix(rng.poisson(rates * rng.uniform(0.2, 1, 40))))
    digits = load_digits(n_class=4)
    Path("photos").mkdir()
    for i, image in enumerate(digits.images[:60]):
        Image.fromarray((image * 15.9).astype(np.uint8)).save(f"photos/{i}.png")


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_runs(files, capsys, page):
    names = {}
    for block in blocks(page, "python"):
        exec(block, names)
    assert len(set(names["model" if "model" in names else "learnt"].labels_)) > 1


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sh")], ids=lambda page: page.stem)
def test_commands_run(files, works, page):
    for line in "".join(blocks(page, "sh")).splitlines():
        program, *words = shlex.split(line)
        assert program == "diffclust"
        assert works(*words)


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text()
    assert [page.stem for page in PAGES if f"kinds/{page.stem}" not in index] == []
    assert len(PAGES) == 6
