"""Do different distances come to agree, and does the space get better by it? (The paper's Figure 1a.)

Over the epochs: the share of rows that the two assignments put into different clusters, and the accuracy of P₁ and of
k-means on the embedding. Writes invariance.png; METRIC=cosine DATA=usps python examples/invariance.py for others.
"""

import os

from matplotlib.figure import Figure

from diffclust import CrossMetric, datasets
from diffclust.callbacks import Evaluate
from diffclust.metrics import accuracy
from diffclust.nn import kmeans

X, y = datasets.load(os.environ.get("DATA", "digits"))
EVERY = 5


def watch(progress):
    """k-means from scratch on the embedding of this epoch; the labels only score."""
    done = progress.epoch + 1
    if progress.phase == "clustering" and (done % EVERY == 0 or done == progress.epochs):
        labels = kmeans(progress.data.map(progress.model.eval().embed), 10).labels
        progress.record["k-means"] = accuracy(y, labels.cpu().numpy())


model = CrossMetric(
    n_clusters=10,
    metric=os.environ.get("METRIC", "euclidean"),
    network="dense",
    augment=None,
    tolerance=0,
    random_state=0,
    callbacks=[Evaluate(y, EVERY), watch],
).fit(X)
history = [record for record in model.history_ if record["phase"] == "clustering"]

figure = Figure(figsize=(5, 3.4), layout="constrained")
axis = figure.subplots()
epochs = [record["epoch"] + 1 for record in history]
axis.plot(epochs, [record["disagreement"] for record in history], color="C3", label="rows assigned differently")
scored = [record for record in history if "k-means" in record]
for color, name, label in (("C0", "acc", "accuracy of P₁"), ("C1", "k-means", "accuracy of k-means")):
    axis.plot([r["epoch"] + 1 for r in scored], [r[name] for r in scored], color=color, marker="o", label=label)
axis.set_xlabel("epoch")
axis.set_ylim(0, 1)
axis.grid(alpha=0.3)
axis.legend(loc="center right")
figure.savefig("invariance.png", dpi=120)
first, last = scored[0], scored[-1]
print(f"rows assigned differently: {history[0]['disagreement']:.3f} -> {history[-1]['disagreement']:.3f}")
print(f"P1 {first['acc']:.3f} -> {last['acc']:.3f}, k-means {first['k-means']:.3f} -> {last['k-means']:.3f}")
