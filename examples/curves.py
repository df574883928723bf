"""How the scores come about: labels scored every few epochs, as the papers draw it."""

from diffclust import TELL, callbacks, datasets

X, y = datasets.load("digits")
model = TELL(n_clusters=10, random_state=0, callbacks=[callbacks.Evaluate(y, every=5)]).fit(X)  # y only watches
for record in model.history_:
    if "acc" in record:
        print(record["epoch"] + 1, round(record["acc"], 3), round(record["nmi"], 3), round(record["clustering"], 4))
