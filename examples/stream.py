"""A stream: learn from batches as they come, watch the clusters drift, hand the model to a machine without torch."""

import numpy as np

from diffclust import TELL

rng = np.random.default_rng(0)
centers = rng.normal(size=(5, 16)) * 6
model = TELL(5, network="identity", random_state=0)
for _ in range(50):  # the first batch starts the model; from then on cluster 3 stays cluster 3
    centers[0] += 0.1  # one of the sources moves
    model.partial_fit(centers[rng.integers(5, size=256)] + rng.normal(size=(256, 16)))

stream = model.diagnostics_["stream"]
print(f"{stream['rows']} rows since the start")
for j in range(5):
    print(f"cluster {j}: {stream['counts'][j]} rows, its centre moved by {stream['drift'][j]:.1f}")
try:
    model.export_onnx("stream.onnx")  # onnxruntime runs it: samples in, labels and probabilities out
except ImportError as missing:
    print(missing)
