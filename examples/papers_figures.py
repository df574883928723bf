"""TELL's figures: decoded centres over the epochs beside those of autoencoder + k-means, and t-SNE over the epochs with
the centres as stars. On the digits by default; DATA=mnist python examples/papers_figures.py for the paper's own data.
"""

import os
from pathlib import Path

import numpy as np
import torch

from diffclust import TELL, datasets, plot
from diffclust.callbacks import TrainingRecord
from diffclust.nn import kmeans
from diffclust.pictures import sheet, write_png

X, _ = datasets.load(os.environ.get("DATA", "digits"))
X = X / 255 if X.dtype == np.uint8 else X
settings = {"n_clusters": 10, "augment": None, "random_state": 0}

# TELL as in the paper: everything is learnt together, from random centres.
record = TrainingRecord(frames=8)
tell = TELL(**settings, pretrain_epochs=0, init="random", callbacks=[record]).fit(X.astype(np.float32))
epochs = [frame["epoch"] for frame in record.of(tell)]
together = [frame["decoded"][:, 0].numpy() for frame in record.of(tell)]

# The autoencoder alone, with k-means on its embedding at the same epochs.
apart = []


def watch(progress):
    if progress.epoch not in epochs:
        return
    model = progress.model.model.eval()
    with torch.no_grad():
        z = progress.data.map(model.embed)
        apart.append(model.autoencoder.decode(kmeans(z, 10).centers)[:, 0].cpu().numpy())


TELL(**settings, pretrain_epochs=epochs[-1] + 1, epochs=0, callbacks=[watch]).fit(X.astype(np.float32))

gap = np.ones_like(together[0][:1])
rows = [np.concatenate([left, gap, right]) for left, right in zip(together, apart, strict=True)]
write_png(Path("centres_over_epochs.png"), sheet(rows, zoom=max(1, 40 // X.shape[1])))
print(f"centres_over_epochs.png: epochs {[e + 1 for e in epochs]} from top to bottom; left TELL, right AE + k-means")
plot.training(record, tell).write_html("training.html", include_plotlyjs=True, auto_play=False)
print("training.html: the embedding by t-SNE over the same epochs, with a slider; stars are the centres")
