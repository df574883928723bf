"""One fit shared by several processes.

    torchrun --nproc-per-node=2 examples/several_processes.py

Started with plain python it is one process, and does the same.
"""

import diffclust
from diffclust import TELL, datasets, metrics

X, y = datasets.load("digits")
with diffclust.distributed() as processes:
    model = TELL(10, random_state=0, pretrain_epochs=10, epochs=10).fit(X)  # every process has the same model now
if processes.leads:
    print(f"{processes.size} processes, accuracy {metrics.accuracy(y, model.labels_):.3f}")
    model.save("runs/shared")
