"""SSCNet beside SSC, k-means and autoencoder + k-means on USPS, COIL-20, MNIST and CIFAR-10, over seeds, and the
influence of the number of blocks (the paper's Figure 3).

    DIFFCLUST_DATA=... python benchmarks/sscnet.py [--data usps,coil20] [--methods sscnet] [--seeds 5] [--device cuda]

Methods: sscnet (the defaults), sscnet-paper (the paper's settings as far as they are known), sscnet-N-blocks (the
paper's convolutional dictionary with N blocks, our training), sscnet-conv-N-blocks (our network with N blocks; 1 is the
default), ssc, kmeans, ae-kmeans (the same network, pretraining and augmentation as sscnet's defaults, then k-means of
the embedding: TELL with no epochs, sphere=False).
A run that is in the CSV is not repeated. Labels are used for the scores alone.
"""

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import sheet
import torch

from diffclust import SSC, TELL, SSCNet
from diffclust.baselines import BASELINES
from diffclust.datasets import load
from diffclust.metrics import accuracy, ari, nmi

RESULTS = Path(__file__).parent / "results" / "sscnet.csv"
FIELDS = ["data", "method", "seed", "acc", "nmi", "ari", "epochs", "seconds", "device", "torch"]
PAPER = {"usps": (98.90, 94.82), "mnist": (97.52, 93.49), "cifar10": (35.15, 30.41)}  # ACC, NMI


def run(method: str, data: str, X: Any, k: int, seed: int, device: str) -> tuple[np.ndarray, int | str]:
    if method == "kmeans":
        return BASELINES["kmeans"](np.asarray(X, np.float64).reshape(len(X), -1), k, seed), ""
    if method == "ssc":
        return SSC(k, device=device, random_state=seed).fit_predict(X), ""
    if method == "ae-kmeans":
        return TELL(k, epochs=0, sphere=False, device=device, random_state=seed).fit_predict(X), 0
    if method == "sscnet-paper":
        name = data if data in SSCNet.papers else "mnist"
        model = SSCNet.paper(name, n_clusters=k, device=device, random_state=seed)
    elif method.endswith("blocks"):
        network = "conv" if method.startswith("sscnet-conv-") else "conv-dictionary"
        blocks = int(method.split("-")[-2])
        model = SSCNet(k, network=network, n_blocks=blocks, device=device, random_state=seed)
    else:
        model = SSCNet(k, device=device, random_state=seed)
    model.fit(X)
    return model.labels_, model.n_iter_


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="usps,coil20")
    parser.add_argument("--methods", default="kmeans,ssc,ae-kmeans,sscnet")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    done = {(row["data"], row["method"], int(row["seed"])) for row in sheet.read(chosen.out)}
    for data in chosen.data.split(","):
        X, y = load(data)
        for method in chosen.methods.split(","):
            for seed in range(chosen.seeds):
                if (data, method, seed) in done:
                    continue
                began = time.perf_counter()
                labels, epochs = run(method, data, X, len(np.unique(y)), seed, chosen.device)
                row = {
                    "data": data, "method": method, "seed": seed, "acc": f"{100 * accuracy(y, labels):.2f}",
                    "nmi": f"{100 * nmi(y, labels):.2f}", "ari": f"{100 * ari(y, labels):.2f}", "epochs": epochs,
                    "seconds": f"{time.perf_counter() - began:.0f}", "device": chosen.device,
                    "torch": torch.__version__,
                }  # fmt: skip
                sheet.append(chosen.out, FIELDS, [row])
                print(*(row[name] for name in FIELDS[:8]), "paper:", PAPER.get(data, ""), flush=True)


if __name__ == "__main__":
    main()
