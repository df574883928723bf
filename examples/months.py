"""Two months of customers: cluster the first, label the second, and see what changed.

python examples/months.py [FOLDER]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import diffclust
from diffclust import TELL

KINDS = {"student": (9_000, 14, "free"), "family": (52_000, 30, "basic"), "business": (140_000, 95, "premium")}


def month(n: int, seed: int, shares: tuple[float, float, float], dearer: float = 1.0) -> pd.DataFrame:
    """Made-up customers; `shares` of students, families and businesses, incomes times `dearer`."""
    rng = np.random.default_rng(seed)
    rows = []
    for i, kind in enumerate(rng.choice(list(KINDS), n, p=shares)):
        income, orders, plan = KINDS[kind]
        rows.append(
            {
                "customer_id": f"{seed}-{i}",
                "income": round(income * dearer * rng.lognormal(0, 0.3)),
                "orders": rng.poisson(orders),
                "plan": plan if rng.random() < 0.9 else rng.choice(["free", "basic", "premium"]),
            }
        )
    return pd.DataFrame(rows)


def write(folder: Path) -> None:
    month(600, 1, (0.5, 0.3, 0.2)).to_csv(folder / "january.csv", index=False)
    month(500, 2, (0.3, 0.3, 0.4), dearer=1.2).to_csv(folder / "february.csv", index=False)


def main(folder: Path) -> None:
    write(folder)
    january, february = pd.read_csv(folder / "january.csv"), pd.read_csv(folder / "february.csv")

    model = TELL(3, random_state=0).fit(january)
    model.report(folder / "january.html", january)
    drift = diffclust.compare_models(model, model, january, february, names=("january", "february"))
    print(drift)
    for pair in drift.pairs:
        print(f"cluster {pair.before}: {pair.shares[0]:.0%} -> {pair.shares[1]:.0%}; {', '.join(pair.said)}")
    drift.report(folder / "drift.html")

    again = TELL(3, random_state=0).fit(february)
    moved = diffclust.compare_models(model, again, february, names=("january's model", "february's model"))
    print(moved)
    moved.report(folder / "moved.html")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else folder))
