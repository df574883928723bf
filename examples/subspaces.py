"""Cluster rows that lie on planes rather than in balls, and label new ones."""

import numpy as np
from sklearn.cluster import KMeans

from diffclust import SSC, SSCNet
from diffclust.metrics import accuracy

rng = np.random.default_rng(0)
planes = [np.linalg.qr(rng.normal(size=(20, 4)))[0] for _ in range(5)]  # five subspaces of dimension 4 in R^20
X = np.concatenate([rng.normal(size=(40, 4)) @ plane.T for plane in planes])
new = np.concatenate([rng.normal(size=(40, 4)) @ plane.T for plane in planes])
y = np.repeat(np.arange(5), 40)

print("k-means", accuracy(y, KMeans(5, n_init=10, random_state=0).fit_predict(X)))
print("SSC", accuracy(y, SSC(5, random_state=0).fit_predict(X)))  # only these rows
model = SSCNet(5, random_state=0).fit(X)
print("SSCNet", accuracy(y, model.labels_), "new rows", accuracy(y, model.predict(new)))
