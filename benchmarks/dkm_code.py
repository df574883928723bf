"""Deep k-Means on USPS, with two habits of its authors' code that its paper does not mention.

    python benchmarks/dkm_code.py --seeds 3
    python benchmarks/dkm_code.py --show

Their code has one Adam for pretraining and clustering, so its moments carry over, and draws every batch independently
of the others, so an epoch misses a third of the rows and sees others twice. Ours begins clustering with a new Adam, and
an epoch is a permutation. DKM-p, λ = 1; scores of all rows, by which nothing is chosen. Finished runs are in the CSV,
and not run again.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import sheet
import torch
from jobs import results_of
from torch.optim import Optimizer

import diffclust
from diffclust import DeepKMeans
from diffclust.datasets import load
from diffclust.engine.feed import Feed
from diffclust.engine.pretraining import Pretraining
from diffclust.metrics import accuracy, nmi
from diffclust.reproduce.dkm import SEEDS

HERE = Path(__file__).parent
HABITS = {
    "as ours": (False, False),
    "moments carried over": (True, False),
    "independent batches": (False, True),
    "both": (True, True),
}
FIELDS = ("habit", "seed", "acc", "nmi", "seconds", "device", "diffclust", "torch")


class OneAdam(DeepKMeans):
    """The optimiser of each phase begins with the moments of the one before. Both phases sum the squared errors of a
    row, as in the authors' code: ours pretrains on their mean, whose moments would be far too small."""

    def pretraining(self, model: Any) -> Pretraining:
        return Pretraining(model, summed=True)

    def build_optimizer(self, model: Any) -> Optimizer | None:
        optimizer = super().build_optimizer(model)
        assert optimizer is not None
        before = vars(self).setdefault("_optimizers", [])
        if before:
            previous = before[-1]

            def carry(self: Optimizer, *_: Any) -> None:
                if not self.state:
                    for parameter, moments in previous.state.items():
                        self.state[parameter] = {name: value.clone() for name, value in moments.items()}

            optimizer.register_step_pre_hook(carry)
        before.append(optimizer)
        return optimizer


@contextmanager
def independent_batches() -> Iterator[None]:
    """Within this context each batch is drawn from all rows."""
    permuted = Feed.begin_epoch

    def drawn(self: Feed) -> None:
        permuted(self)
        for step in range(len(self.order)):
            self.order[step] = torch.randperm(len(self.data), device=self.order.device)[: self.order.shape[1]]

    Feed.begin_epoch = drawn  # type: ignore[method-assign]
    try:
        yield
    finally:
        Feed.begin_epoch = permuted  # type: ignore[method-assign]


def run(habit: str, seed: int, device: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    carried, independent = HABITS[habit]
    X, y = load("usps-signed")
    began = time.perf_counter()
    kind = OneAdam if carried else DeepKMeans
    model = kind.paper("usps", random_state=seed, device=device)
    if independent:
        with independent_batches():
            model.fit(X)
    else:
        model.fit(X)
    return {
        "habit": habit, "seed": seed, "acc": f"{100 * accuracy(y, model.labels_):.2f}",
        "nmi": f"{100 * nmi(y, model.labels_):.2f}", "seconds": f"{time.perf_counter() - began:.1f}",
        "device": device, "diffclust": diffclust.__version__, "torch": torch.__version__,
    }  # fmt: skip


def show(path: Path) -> None:
    for habit in HABITS:
        rows = [row for row in sheet.read(path) if row["habit"] == habit]
        figures = [[float(row[name]) for row in rows] for name in ("acc", "nmi")]
        spread = ["" if len(each) < 2 else f" ± {stdev(each):.1f}" for each in figures]
        if rows:
            acc, its_nmi = (f"{mean(each):.1f}{around}" for each, around in zip(figures, spread, strict=True))
            print(f"{habit:22} ACC {acc}, NMI {its_nmi}, {len(rows)} seeds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--show", action="store_true")
    wish = parser.parse_args()
    path = wish.results / "dkm_code.csv"
    if not wish.show:
        done = {(row["habit"], int(row["seed"])) for row in sheet.read(path)}
        work = [(h, s, wish.device) for s in SEEDS[: wish.seeds] for h in HABITS if (h, s) not in done]
        for row in results_of(run, work, wish.jobs):
            sheet.append(path, FIELDS, [row])
            print(row, flush=True)
    show(path)


if __name__ == "__main__":
    main()
