"""Better features, better TELL (the paper's Table 5): an encoder trained on augmented pairs, clustered as it is.

    DIFFCLUST_DATA=... python benchmarks/features.py [--data mnist] [--device cuda] [--seeds 5] [--every 10]

The features stand for whatever embedding a user has. A small convolutional encoder learns, without labels, to tell
the two changed versions of an image from those of all others (InfoNCE): "pairs". From there it goes on as long again
with changed versions of an image and of one of its nearest neighbours in those features: "neighbours". "IIC" is what
`IIC(10)` embeds, the paper's kind of features, with the network and the start of this library. All are saved as .npy
files and clustered through network="identity", offline (all rows) and online (a fit on 1,000 rows of the official
test part, then one pass over the training part in batches of 256, labelled as they arrive), beside k-means. A seed is
that of the encoder, of the clustering and of the stream.

Labels only score. The encoder's temperature, width and strength were chosen by accuracy and NMI on USPS (one seed),
never on MNIST.
"""

import argparse
import csv
import itertools
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans, MiniBatchKMeans
from torch import Tensor, nn

from diffclust import IIC, TELL, datasets, metrics
from diffclust.nn.augment import jitter

RESULTS = Path(__file__).parent / "results" / "features.csv"
TRAINING = {"mnist": 60_000, "usps": 7_291, "optdigits": 3_823}  # rows of the official training part; they come first
SETTINGS = ("every", "epochs", "batch", "width", "lr", "temperature", "strength", "neighbours")
PAPER = {  # with IIC features, MNIST: ACC / NMI / ARI
    ("offline", "k-means"): "98.20 / 96.08 / 96.06",
    ("offline", "TELL"): "98.64 / 96.54 / 96.98",
    ("online", "k-means"): "98.10 / 95.90 / 95.85",
    ("online", "TELL"): "98.44 / 96.22 / 96.56",
}


class Encoder(nn.Module):
    """Images (b, 1, h, w) to directions (b, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()

        def block(c_in: int, c_out: int, stride: int) -> list[nn.Module]:
            return [nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU()]

        self.features = nn.Sequential(*block(1, 32, 2), *block(32, 64, 2), *block(64, 128, 2), nn.Flatten())
        self.head = nn.Sequential(nn.LazyLinear(256, bias=False), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, width))

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(self.head(self.features(x)).float(), dim=1)


def info_nce(a: Tensor, b: Tensor, temperature: float) -> Tensor:
    """-log of the share that a version's partner has among all versions but itself, mean over both sides."""
    z = torch.cat([a, b])  # (2b, d)
    logits = (z @ z.T / temperature).fill_diagonal_(-torch.inf)
    partner = torch.arange(len(z), device=z.device).roll(len(a))
    return F.cross_entropy(logits, partner)


def train(encoder: Encoder, images: Tensor, partners: Tensor, args: argparse.Namespace) -> float:
    """Bring an image and one of its partners (n, m) together; the mean loss of the last epoch."""
    kind = torch.device(args.device).type
    steps = len(images) // args.batch
    optimizer = torch.optim.AdamW(encoder.parameters(), weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * steps)
    total = torch.zeros((), device=args.device)
    encoder.train()
    for _ in range(args.epochs):
        order = torch.randperm(len(images), device=args.device)
        which = torch.randint(partners.shape[1], order.shape, device=args.device)
        total.zero_()
        for i in range(steps):
            part = slice(i * args.batch, (i + 1) * args.batch)
            x, y = images[order[part]], images[partners[order[part], which[part]]]
            with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
                a, b = encoder(torch.cat([jitter(x, args.strength), jitter(y, args.strength)])).chunk(2)
            loss = info_nce(a, b, args.temperature)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
    return total.item() / steps


@torch.no_grad()
def embed(encoder: Encoder, images: Tensor) -> Tensor:
    encoder.eval()
    return torch.cat([encoder(part) for part in images.split(4096)])


def learn(images: Tensor, seed: int, args: argparse.Namespace) -> Iterator[tuple[str, np.ndarray, float, float]]:
    """Name, features (n, width), loss and seconds so far, of one encoder at two moments."""
    torch.manual_seed(seed)
    began = time.perf_counter()
    images = images.to(args.device)
    encoder = Encoder(args.width).to(args.device)
    encoder(images[:2])  # the first call finds the width of its head
    itself = torch.arange(len(images), device=args.device)[:, None]
    loss = train(encoder, images, itself, args)
    features = embed(encoder, images)
    yield "pairs", features.cpu().numpy(), loss, time.perf_counter() - began
    near = torch.cat([(part @ features.T).topk(1 + args.neighbours).indices[:, 1:] for part in features.split(2048)])
    loss = train(encoder, images, near, args)
    yield "neighbours", embed(encoder, images).cpu().numpy(), loss, time.perf_counter() - began


def informed(images: Tensor, seed: int, args: argparse.Namespace) -> Iterator[tuple[str, np.ndarray, float, float]]:
    """The same of IIC, whose own labels are those of k-means on its features, or nearly."""
    began = time.perf_counter()
    model = IIC(10, random_state=seed, device=args.device).fit(images[:, 0].numpy())
    loss = model.history_[-1]["clustering"]
    yield "IIC", model.transform(images[:, 0].numpy()), loss, time.perf_counter() - began


def cluster(path: Path, digits: np.ndarray, training: int, seed: int, device: str) -> dict[tuple[str, str], tuple]:
    """(protocol, method) -> truth, labels, seconds."""
    X = np.load(path)
    found = {}

    def keep(protocol: str, method: str, truth: np.ndarray, labels: np.ndarray, began: float) -> None:
        found[protocol, method] = truth, labels, time.perf_counter() - began

    ours = {"network": "identity", "sphere": True, "random_state": seed, "device": device}
    began = time.perf_counter()
    keep("offline", "k-means", digits, KMeans(10, n_init=10, random_state=seed).fit_predict(X), began)
    began = time.perf_counter()
    keep("offline", "TELL", digits, TELL(10, **ours).fit(X).labels_, began)

    rng = np.random.default_rng(seed)
    start = training + rng.choice(len(X) - training, 1000, replace=False)
    stream = rng.permutation(training)
    for name, model in (("k-means", MiniBatchKMeans(10, n_init=10, random_state=seed)), ("TELL", TELL(10, **ours))):
        began = time.perf_counter()
        model.fit(X[start])
        arrived = []
        for i in range(0, training, 256):
            rows = X[stream[i : i + 256]]
            model.partial_fit(rows)
            arrived.append(model.predict(rows))
        keep("online", name, digits[stream], np.concatenate(arrived), began)
    return found


LEARNERS = {"pairs": learn, "IIC": informed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist", choices=TRAINING)
    parser.add_argument("--features", nargs="+", default=("pairs", "IIC"), choices=("pairs", "IIC"))
    parser.add_argument("--every", type=int, default=1, help="take every n-th image only, to try it")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=40, help="on pairs, and again on neighbours; IIC has its own")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--width", type=int, default=64, help="of the features")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--temperature", type=float, default=0.5)
    parser.add_argument("--strength", type=float, default=1.0, help="of the changes")
    parser.add_argument("--neighbours", type=int, default=20)
    parser.add_argument("--folder", type=Path, help="keep the features here, NAME-SEED.npy")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    images, digits = datasets.load(args.data)
    training = len(range(0, TRAINING[args.data], args.every))
    scale = 255 if images.dtype == np.uint8 else 1
    images = torch.from_numpy(images[:: args.every].astype(np.float32) / scale)[:, None]
    digits = digits[:: args.every]
    where = torch.cuda.get_device_name() if args.device.startswith("cuda") else "cpu"
    lines = []
    with tempfile.TemporaryDirectory() as aside:
        folder = args.folder or Path(aside)
        folder.mkdir(parents=True, exist_ok=True)
        for seed in range(args.seeds):
            wanted = [make(images, seed, args) for kind, make in LEARNERS.items() if kind in args.features]
            for name, features, loss, seconds in itertools.chain.from_iterable(wanted):
                path = folder / f"{name}-{seed}.npy"
                np.save(path, features)
                print(f"seed {seed}, {name}: encoder in {seconds:.1f} s, loss {loss:.4f}", flush=True)
                answers = cluster(path, digits, training, seed, args.device)
                for (protocol, method), (truth, labels, took) in answers.items():
                    scores = metrics.scores(truth, labels)
                    line = {"data": args.data, "features": name, "protocol": protocol, "method": method, "seed": seed}
                    line |= {score: round(100 * scores[score], 2) for score in ("acc", "nmi", "ari")}
                    line |= {"seconds": round(took, 1), "encoder_seconds": round(seconds, 1), "loss": round(loss, 4)}
                    line |= {setting: getattr(args, setting) for setting in SETTINGS}
                    lines.append(line | {"device": where, "torch": torch.__version__})
    new = not args.results.exists()
    with args.results.open("a", newline="") as file:
        writer = csv.DictWriter(file, lines[0].keys(), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(lines)
    print(f"ACC / NMI / ARI, mean ± standard deviation over {args.seeds} seeds")
    for name in dict.fromkeys(line["features"] for line in lines):
        for protocol, method in PAPER:
            key = (name, protocol, method)
            own = [line for line in lines if (line["features"], line["protocol"], line["method"]) == key]
            columns = [[line[score] for line in own] for score in ("acc", "nmi", "ari")]
            spread = [statistics.stdev(c) if len(c) > 1 else 0.0 for c in columns]
            said = " / ".join(f"{statistics.mean(c):.2f} ± {s:.2f}" for c, s in zip(columns, spread, strict=True))
            beside = f"   paper, IIC features: {PAPER[protocol, method]}" if args.data == "mnist" else ""
            print(f"{name:12}{protocol:9}{method:9}{said}{beside}")


if __name__ == "__main__":
    main()
