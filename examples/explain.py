"""Why is this row in this cluster? What is this cluster? And a page about everything."""

from diffclust import TELL, datasets
from diffclust.callbacks import TrainingRecord

X, y = datasets.load("digits")
record = TrainingRecord(frames=6)  # for the slider over epochs
model = TELL(n_clusters=10, random_state=0, callbacks=[record]).fit(X)

why = model.explain(X[7:8])[0]
print(why)
assert abs(why.contributions.sum() + why.bias - why.margin) < 1e-9  # the explanation is the model
print(model.explain_cluster(3, X))
print(model.explain_pair(X[0], X[1]))
print(model.explain_model())
print(model.report("report.html", X, y), "is one file that opens in any browser, offline")
