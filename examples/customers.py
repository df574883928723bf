"""A table as people have it: an id, a date, categories, blanks, uneven units. From the file to named clusters.

python examples/customers.py
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from diffclust import TELL, metrics

KINDS = {  # of customers: share, income, orders a year, plan, channel, age, month of signing up
    "student": (0.3, 9_000, 14, ("free", "basic"), ("app",), 22, 10),
    "family": (0.3, 52_000, 30, ("basic", "premium"), ("web", "app"), 41, 3),
    "business": (0.2, 140_000, 95, ("premium",), ("sales",), 47, 6),
    "dormant": (0.2, 33_000, 1, ("free",), ("web",), 58, 1),
}


def customers(n: int = 1000, seed: int = 0, missing: float = 0.05) -> pd.DataFrame:
    """Made-up customers of four kinds; `kind` is the truth, and 5 % of the other cells are blank."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(list(KINDS), n, p=[share for share, *_ in KINDS.values()])
    rows = []
    for i, kind in enumerate(kinds):
        _, income, orders, plans, channels, age, month = KINDS[kind]
        day = pd.Timestamp(2019 + rng.integers(5), month, 1) + pd.Timedelta(days=int(rng.normal(0, 25)))
        rows.append(
            {
                "customer_id": 100_000 + 7 * i,
                "signup": day.date().isoformat(),
                "income": f"{income * rng.lognormal(0, 0.3):,.0f}",
                "orders": rng.poisson(orders),
                "age": round(rng.normal(age, 6)),
                "plan": rng.choice(plans),
                "channel": rng.choice(channels) if rng.random() < 0.9 else rng.choice(["app", "web", "sales"]),
                "country": rng.choice(["AT", "CH", "DE", "FR"]),
                "currency": "EUR",
                "kind": kind,
            }
        )
    table = pd.DataFrame(rows).astype(object)
    blank = rng.random(table.shape) < missing
    blank[:, [0, table.shape[1] - 1]] = False
    return table.mask(blank)


def main(folder: Path, epochs: int | str = "auto") -> None:
    customers().to_csv(folder / "customers.csv", index=False)
    table = pd.read_csv(folder / "customers.csv")
    truth = table.pop("kind")

    model = TELL(4, epochs=epochs, random_state=0).fit(table)
    print(model.columns_.describe())
    print(f"accuracy {metrics.accuracy(truth, model.labels_):.3f}")
    for j in range(4):
        print(model.explain_cluster(j, table).said)
    print(model.explain(table[:1])[0])
    model.save(folder / "model")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else folder))
