import pytest
from PIL import Image

from diffclust.reproduce.curves import _mean, draw
from diffclust.reproduce.spec import Row

from .conftest import outcome, spec, table


def with_curve(seed, accs, **losses):
    run = outcome(spec(), seed, accs[-1])
    run.curve = [
        {"epoch": 10 * (i + 1), "acc": acc, "nmi": acc / 2, "ari": acc / 4, **losses} for i, acc in enumerate(accs)
    ]
    return run


def test_the_mean_is_over_the_epochs_that_all_runs_have():
    runs = [with_curve(0, [10, 20, 30]), with_curve(1, [20, 40])]
    assert _mean(runs, "acc") == ([10, 20], [15, 30])


def test_curves_are_drawn(records, tmp_path):
    rows = table(Row("plain", spec()), Row("none yet", spec(epochs=9)), figure="curves")
    path = tmp_path / "new" / "curves.png"
    assert not draw(rows, records, path)
    assert not path.exists()
    records.add("x", [with_curve(0, [10, 50, 90], clustering=0.1), with_curve(1, [10, 20, 30], clustering=0.2)])
    assert draw(rows, records, path)
    with Image.open(path) as image:
        colours = {colour for _, colour in image.convert("RGB").getcolors(10**6)}
    assert {(31, 119, 180), (255, 127, 14), (44, 160, 44)} <= colours  # a line for each score


@pytest.mark.parametrize("runs", [1, 3])
def test_a_sweep_is_drawn(records, tmp_path, runs):
    rows = [Row(f"α = {a}", spec(center_step=a), group="g", x=a) for a in (0.01, 0.1)]
    for row in rows:
        records.add("x", [outcome(row.spec, seed, 50 + seed) for seed in range(runs)])
    assert draw(table(*rows, figure="sweep", axis="α"), records, tmp_path / "sweep.png")
    with Image.open(tmp_path / "sweep.png") as image:
        assert image.width > 300
