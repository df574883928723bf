"""Why SSCNet's own pipeline does not train as it is printed: a look at its first steps on USPS.

    python benchmarks/sscnet_letter.py [--device cuda] [--steps 400] [--rows 9298] [--out ...]

start     by first weights (He's, Glorot's, torch's): how many codes the printed threshold of 0.15 leaves, and lengths
gradients of each term of the loss as printed: the length of a step of SGD at 3e-4, as a share of the weights' length
descent   L1 alone, by |E| as printed and by |X - A(Z)|, by Adam: what becomes of E, of X - A(Z), and of the codes
spectrum  tr(YᵀLY) behind 10 layers by the cap of their steps, beside the least there is
rotation  two batches that share half of their rows: how far apart the shared rows' Y are, as they are and turned
Every line of the CSV is one number, mean over `--seeds` seeds.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import sheet
import torch
from torch import Tensor, nn

from diffclust import SSCNet, datasets
from diffclust.engine.data import Batch, Data, batches
from diffclust.engine.rows import TensorRows
from diffclust.methods.sscnet_paper import PaperModel
from diffclust.nn.autoencoders.base import draw_glorot
from diffclust.nn.graph import affinity, laplacian

RESULTS = Path(__file__).parent / "results" / "sscnet_letter.csv"
FIELDS = ["what", "of", "figure", "value", "seeds", "device", "torch"]
BATCH, RATE = 256, 3e-4  # the paper's
Figures = dict[tuple[str, str, str], list[float]]


def model_of(data: Data, weights: str = "he", **changes: object) -> PaperModel:
    estimator = SSCNet.paper("usps", **changes)
    network = estimator.build_autoencoder(data)
    if weights != "he":
        for layer in network.modules():
            if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)):
                layer.reset_parameters()
    if weights == "glorot":
        draw_glorot(network)
    model = estimator.build_model(network, len(data)).to(data.device)
    assert isinstance(model, PaperModel)
    return model


def lengths(values: Tensor) -> float:
    return values.flatten(1).norm(dim=1).mean().item()


@torch.no_grad()
def coded(model: PaperModel, x: Tensor) -> dict[str, float]:
    z, x, fit, e = model.codes(x)
    return {
        "codes left, %": 100 * (z != 0).float().mean().item(),
        "|Z|_1 of an image": z.abs().sum(1).mean().item(),
        "|X|": lengths(x),
        "|E|": lengths(e),
        "|X - A(Z)|": lengths(x - fit),
        "B2": torch.stack([block.error_threshold.abs().mean() for block in model.blocks]).mean().item(),
    }


def gradients(model: PaperModel, data: Data) -> dict[str, dict[str, float]]:
    """Of the terms as printed, in the third kind of step."""
    model.before_training(data)
    model.turn.fill_(2)
    index = torch.arange(len(model.start), device=data.device)
    x = data.take(index)
    weights = [p for p in [*model.autoencoder.parameters(), *model.earlier.parameters()] if p.requires_grad]
    size = torch.stack([p.norm() for p in weights]).norm().item()
    found = {}
    for name, term in model.loss(Batch(x, x, index)).items():
        slopes = torch.autograd.grad(term, weights, retain_graph=True, allow_unused=True)
        length = torch.stack([g.norm() for g in slopes if g is not None] or [x.new_zeros(())]).norm().item()
        found[name] = {
            "loss": term.item(),
            "gradient of A and A'": length,
            "a step, % of the weights": 100 * RATE * length / size,
        }
    return found


def descent(model: PaperModel, data: Data, steps: int, as_printed: bool) -> None:
    """L1 alone; its |E| is that of the last block, or X - A(Z)."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        index = torch.randint(len(data), (BATCH,), generator=generator).to(data.device)
        codes = model.codes(data.take(index))
        codes = codes if as_printed else codes._replace(e=codes.x - codes.fit)
        optimizer.zero_grad()
        sum(PaperModel.coding_losses(model, codes).values(), torch.zeros((), device=data.device)).backward()
        optimizer.step()


@torch.no_grad()
def spectrum(model: PaperModel, z: Tensor) -> dict[str, float]:
    operator = laplacian(affinity(z, model.n_neighbors))
    return {
        "Y(0)": (model.start * (operator @ model.start)).sum().item(),
        "10 layers": model.descend(z, model.start)[1].item(),
        "least": torch.linalg.eigvalsh(operator.double())[: model.start.shape[1]].sum().item(),
    }


@torch.no_grad()
def rotation(model: PaperModel, z: Tensor, exact: bool) -> dict[str, float]:
    """z has a batch and a half; the two batches share its middle."""
    size = len(model.start)
    half = len(z) - size
    found = []
    for part in (z[:size], z[half:]):
        if exact:
            k = model.start.shape[1]
            found.append(torch.linalg.eigh(laplacian(affinity(part, model.n_neighbors)).double())[1][:, :k])
        else:
            found.append(model.descend(part, model.start)[0].double())
    a, b = found[0][half:], found[1][: size - half]
    u, _, v = torch.linalg.svd(a.T @ b)
    turned = a @ u @ v
    return {
        "as they are, %": 100 * ((a - b).norm() / a.norm()).item(),
        "turned, %": 100 * ((turned - b).norm() / a.norm()).item(),
    }


def look(data: Data, steps: int, seed: int, figures: Figures) -> None:
    def note(what: str, of: str, found: dict[str, float]) -> None:
        for name, value in found.items():
            figures[what, of, name].append(value)

    torch.manual_seed(seed)
    size = batches(len(data), BATCH)[1]
    x = data.take(data.draw(size + size // 2))
    for weights in ("he", "glorot", "torch"):
        note("start", weights, coded(model_of(data, weights), x))
    for term, found in gradients(model_of(data), data).items():
        note("gradients", term, found)
    for of, as_printed in (("|E| as printed", True), ("|X - A(Z)|", False)):
        model = model_of(data)
        descent(model, data, steps, as_printed)
        note("descent", f"{of}, {steps} steps", coded(model, x))
    for cap in (0.01, None):
        model = model_of(data, cap=cap)
        model.before_training(data)
        z = model.features(model.codes(x).z)
        note("spectrum", f"cap {cap}", spectrum(model, z[:size]))
        note("rotation", f"10 layers, cap {cap}", rotation(model, z, exact=False))
        if cap is None:
            note("rotation", "exact", rotation(model, z, exact=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rows", type=int, default=9298)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    if sheet.read(chosen.out):
        print(f"{chosen.out} is there.")
        return
    X, _ = datasets.load("usps")
    images = torch.from_numpy(X[: chosen.rows]).float()[:, None] / 255
    figures: Figures = defaultdict(list)
    for seed in range(chosen.seeds):
        look(Data(TensorRows(images), torch.device(chosen.device), BATCH), chosen.steps, seed, figures)
    rows = [
        dict(zip(FIELDS, (*key, f"{sum(v) / len(v):.4g}", len(v), chosen.device, torch.__version__), strict=True))
        for key, v in figures.items()
    ]
    sheet.append(chosen.out, FIELDS, rows)
    for row in rows:
        print(*row.values())


if __name__ == "__main__":
    main()
