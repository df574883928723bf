"""TELL's figures on MNIST: decoded centres over the epochs beside those of autoencoder + k-means, and t-SNE over the
epochs with the centres as stars.

    python examples/papers_figures.py [--rows 2000] [--epochs 25] [--data digits] [--device cpu]

The defaults take a minute or two on a CPU. `--rows 70000 --epochs 200 --device cuda` is nearer to the paper, which
trains for 3,000 epochs; `--data digits` needs no download.
"""

import argparse
import warnings

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from diffclust import TELL, datasets
from diffclust.callbacks import TrainingRecord
from diffclust.nn import kmeans
from diffclust.report.layout import follow

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=2000)
parser.add_argument("--epochs", type=int, default=25)
parser.add_argument("--data", default="mnist")
parser.add_argument("--device", default="auto")
wish = parser.parse_args()

X, _ = datasets.load(wish.data)
X = X[np.linspace(0, len(X) - 1, min(len(X), wish.rows)).astype(int)]
settings = {"n_clusters": 10, "augment": None, "random_state": 0, "device": wish.device}
warnings.simplefilter("ignore")  # so short a run may leave a cluster empty: the picture shows it

# TELL as in the paper: everything is learnt together, from random centres.
marks = np.unique(np.geomspace(1, wish.epochs, 7).round().astype(int) - 1).tolist()
record = TrainingRecord(epochs=marks)
tell = TELL(**settings, pretrain_epochs=0, epochs=wish.epochs, init="random", callbacks=[record]).fit(X)
frames = record.of(tell)

# The autoencoder alone, with k-means on its embedding at the same epochs.
apart = []


def watch(progress):
    if progress.epoch in marks:
        model = progress.model.model.eval()
        with torch.no_grad():
            centers = kmeans(progress.data.map(model.embed), 10).centers
            apart.append(model.autoencoder.decode(centers)[:, 0].cpu().numpy())


TELL(**settings, pretrain_epochs=wish.epochs, epochs=0, callbacks=[watch]).fit(X)


def in_order(pictures):
    """k-means numbers its clusters anew each time: give each the column of the picture it is most like."""
    for later, earlier in zip(pictures[-2::-1], pictures[:0:-1], strict=True):
        cost = cdist(earlier.reshape(10, -1), later.reshape(10, -1))
        later[:] = later[linear_sum_assignment(cost)[1]]
    return pictures


together = [frame["decoded"][:, 0].numpy() for frame in frames]
figure = Figure(figsize=(12, 0.55 * len(marks) + 0.5), layout="constrained")
sides = figure.subfigures(1, 2, wspace=0.04)
for side, title, pictures in zip(
    sides,
    ("TELL: centres learnt with the network", "autoencoder, then k-means"),
    (together, in_order(apart)),
    strict=True,
):
    side.suptitle(title, fontsize=11)
    axes = side.subplots(len(marks), 10, gridspec_kw={"wspace": 0.05, "hspace": 0.05})
    for line, epoch, images in zip(axes, marks, pictures, strict=True):
        for axis, image in zip(line, images, strict=True):
            axis.imshow(image, cmap="gray", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
        line[0].set_ylabel(f"{epoch + 1}", rotation=0, ha="right", va="center", fontsize=9)
    side.supylabel("epoch", fontsize=9)
figure.savefig("centres_over_epochs.png", dpi=110)
print(f"centres_over_epochs.png: {wish.data}, {len(X):,} rows, a column a centre, epochs from top to bottom")

clouds = [np.concatenate([frame["embedding"].numpy(), frame["centers"].numpy()]) for frame in frames]
shown = [0, len(frames) // 2, len(frames) - 1]
maps = follow([clouds[i] for i in shown], "t-SNE")
figure = Figure(figsize=(12, 4.3), layout="constrained")
for axis, i, flat in zip(figure.subplots(1, 3), shown, maps, strict=True):
    rows, stars = flat[:-10], flat[-10:]
    axis.scatter(*rows.T, c=frames[i]["labels"], cmap="tab10", vmin=0, vmax=9, s=6, linewidths=0)
    axis.scatter(*stars.T, c=range(10), cmap="tab10", vmin=0, vmax=9, s=230, marker="*", edgecolors="black")
    axis.set(title=f"epoch {marks[i] + 1}", xticks=[], yticks=[])
    axis.set_aspect("equal", adjustable="datalim")
figure.savefig("tsne_over_epochs.png", dpi=110)
print("tsne_over_epochs.png: the embedding by t-SNE, coloured by cluster; stars are the centres")
