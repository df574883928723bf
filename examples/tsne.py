"""What the family does to an embedding (Figure 2 of Deep k-Means): t-SNE of AE, DCN, DKM-a and DKM-p, side by side.

On USPS where it is to be had, else on scikit-learn's digits; a point's colour is its true class, which nothing saw.
Network and λ are the paper's, and AE, DCN and DKM-p share one trained autoencoder; the number of epochs follows
the rows. Several minutes for USPS on a CPU.
"""

from pathlib import Path

import numpy as np
from sklearn.manifold import TSNE

from diffclust import DCN, AEKMeans, DeepKMeans, datasets, metrics
from diffclust.explain.pictures import write_png

try:
    X, y = datasets.load("usps-signed")
except FileNotFoundError:
    X, y = datasets.load("digits")
COLOURS = np.array(
    [[31, 119, 180], [255, 127, 14], [44, 160, 44], [214, 39, 40], [148, 103, 189], [140, 86, 75], [227, 119, 194],
     [127, 127, 127], [188, 189, 34], [23, 190, 207]], np.uint8,
)  # fmt: skip


def scatter(points: np.ndarray, size: int = 400) -> np.ndarray:
    """A picture (size, size, 3) with a small square a point."""
    low, high = points.min(0), points.max(0)
    places = ((points - low) / (high - low) * (size - 8) + 2).astype(int)
    picture = np.full((size, size, 3), 255, np.uint8)
    for (column, row), label in zip(places, y[shown], strict=True):
        picture[row : row + 3, column : column + 3] = COLOURS[label]
    return picture


shown = np.random.default_rng(0).choice(len(X), min(600, len(X)), replace=False)
common = {"random_state": 0, "epochs": "auto"}
start = AEKMeans.paper("usps", pretrain_epochs="auto", **common).fit(X)
shared = {"network": start.model_.autoencoder, "init": start.cluster_centers_, "pretrain_epochs": 0, **common}
models = {
    "AE": start,
    "DCN": DCN.paper("usps-dkm", **shared).fit(X),
    "DKM-a": DeepKMeans.paper("usps-a", **common).fit(X),
    "DKM-p": DeepKMeans.paper("usps", **shared).fit(X),
}
pictures = []
for name, model in models.items():
    print(f"{name:6} accuracy {metrics.accuracy(y, model.labels_):.3f}  NMI {metrics.nmi(y, model.labels_):.3f}")
    flat = TSNE(init="pca", perplexity=30, random_state=0).fit_transform(model.transform(X[shown]))
    pictures.append(scatter(flat))
write_png(Path("tsne.png"), np.concatenate(pictures, axis=1))
print("tsne.png: from left to right", ", ".join(models))
