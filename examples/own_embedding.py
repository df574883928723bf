"""Cluster an embedding you already have, offline and then as batches arrive."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from diffclust import TELL
from diffclust.metrics import nmi

digits = load_digits()
embedding = PCA(20, whiten=True, random_state=0).fit_transform(digits.data)

model = TELL(n_clusters=10, network="identity", random_state=0).fit(embedding[:1000])
print("offline", round(nmi(digits.target[:1000], model.labels_), 3))
for batch in np.array_split(embedding[1000:], 8):
    model.partial_fit(batch)  # the paper's online rule: the centres move, their numbers stay
print("after the stream", round(nmi(digits.target, model.predict(embedding)), 3))
