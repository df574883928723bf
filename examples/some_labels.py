"""A few labels, or pairs of rows that belong together, and what they are worth; then a cluster put right by hand."""

import numpy as np

from diffclust import TELL, datasets, metrics

images, y = datasets.load("digits")
X = images.reshape(len(images), -1)
rng = np.random.default_rng(0)

known = np.full(len(X), -1)  # -1: not known
for digit in range(10):
    known[rng.permutation(np.flatnonzero(y == digit))[:10]] = digit
pairs = rng.integers(len(X), size=(4000, 2))
together = pairs[(y[pairs[:, 0]] == y[pairs[:, 1]]) & (pairs[:, 0] != pairs[:, 1])][:200]

accuracies = {}
for what, told in (("nothing", {}), ("ten labels a class", {"known": known}), ("200 pairs", {"must_link": together})):
    model = TELL(10, random_state=0).fit(X, **told)
    new = known == -1
    accuracies[what] = metrics.accuracy(y[new], model.labels_[new])
    print(f"{what}: accuracy {accuracies[what]:.3f} on the rows without a label")

nearest = model.hierarchy_[0, :2].astype(int)  # the two that the tree joins first
model.merge(*nearest).split(int(nearest.min()), X)
model.names_ = {int(nearest.min()): "looked at by hand"}
print(model.diagnostics_["sizes"], model.names_)
