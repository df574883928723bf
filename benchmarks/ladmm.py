"""Learnt L-ADMM blocks against plain L-ADMM: how many iterations reach the objective of K trained blocks.

    python benchmarks/ladmm.py [--seeds 3] [--device cpu]

The data are those of subspaces.py, the dictionary 480 of their rows, the objective mean_i |x_i - A z_i| + 0.15 |z_i|_1,
on the rows trained on and on new ones. Classical iterations count up to 2,000, from the same penalty and step.
"""

import argparse
from pathlib import Path

import sheet
import torch
from subspaces import ROWS, K, draw
from torch import Tensor

from diffclust import SSCNet
from diffclust.methods.sscnet_codes import Codes
from diffclust.nn import LADMMBlock

RESULTS = Path(__file__).parent / "results" / "ladmm.csv"
FIELDS = ["rows", "blocks", "seed", "objective", "classical_same_depth", "classical_converged", "iterations", "ratio"]
MOST = 2000


def objective(model: torch.nn.Module, codes: Codes) -> float:
    return float(sum(model.coding_losses(codes).values()))


@torch.no_grad()
def classical(model: torch.nn.Module, x: Tensor) -> list[float]:
    """The objective after each iteration, for the model's own atoms."""
    # λ|Z|_1 + |E| with penalty 1: divided by λ, the penalty is 1/λ
    weight = 1 / model.sparsity
    block = LADMMBlock.classical(model.autoencoder.atoms.T.contiguous(), lam=weight, penalty=weight)
    t = model.codes(x).x
    allowed, state, values = model.autoencoder.others(t), None, []
    for _ in range(MOST):
        state = block(t, state, allowed)
        values.append(objective(model, Codes(state.z, t, state.fit, state.e)))
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    rows = []
    for seed in range(chosen.seeds):
        X, _, new, _ = draw(seed, [ROWS] * K)
        plain: dict[str, list[float]] = {}
        for blocks in (1, 2, 4):
            settings = {
                "network": "dictionary",
                "n_blocks": blocks,
                "sample_weights": False,
                "epochs": 0,
                "device": chosen.device,
            }
            model = SSCNet(K, random_state=seed, **settings).fit(X).model_
            for name, part in (("trained on", X), ("new", new)):
                x = torch.from_numpy(part).float().to(model.turn.device)
                plain[name] = plain.get(name) or classical(model, x)
                with torch.no_grad():
                    reached = objective(model, model.codes(x))
                needed = next((i + 1 for i, value in enumerate(plain[name]) if value <= reached), MOST + 1)
                rows.append({
                    "rows": name, "blocks": blocks, "seed": seed, "objective": f"{reached:.4f}",
                    "classical_same_depth": f"{plain[name][blocks - 1]:.4f}",
                    "classical_converged": f"{plain[name][-1]:.4f}",
                    "iterations": needed if needed <= MOST else f"> {MOST}", "ratio": f"{needed / blocks:.1f}",
                })  # fmt: skip
                print(*rows[-1].values(), flush=True)
    sheet.write(chosen.out, FIELDS, rows)


if __name__ == "__main__":
    main()
