"""Cluster images in three lines, and look at what came out."""

from diffclust import TELL, datasets, metrics

X, y = datasets.load("digits")
model = TELL(n_clusters=10, random_state=0).fit(X)
print({name: round(value, 3) for name, value in metrics.scores(y, model.labels_).items()})
print("sizes", model.diagnostics_["sizes"])
print("decoded centres", model.inverse_transform(model.cluster_centers_).shape)
