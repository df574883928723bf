"""Put eigenvectors into a network of your own: spectral clustering that learns, from a few rows, which columns count.

A pair of rows lies in one part of a graph where their rows of Y, its smallest eigenvectors, point the same way. That
depends on the span of Y alone, so eigenvector layers give it a gradient, also where eigenvalues are equal and
`torch.linalg.eigh` has none. benchmarks/eigenvector_layer.py has times.
"""

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import make_moons
from torch import nn

from diffclust.metrics import accuracy
from diffclust.nn import EigenvectorLayer, affinity, laplacian, smallest_eigenvectors
from diffclust.nn.eigenvectors import random_orthonormal

torch.manual_seed(0)
N, K = 300, 2
moons, y = make_moons(N, noise=0.05, random_state=0)
useless = np.random.default_rng(0).normal(size=(N, 2))
x = torch.from_numpy(np.column_stack([moons, useless])).float()
known = torch.arange(30)  # rows whose part is known
same = torch.from_numpy(y[:30, None] == y[None, :30]).float()


class Spectral(nn.Module):
    """Rows to their rows of Y, brought to length one."""

    def __init__(self) -> None:
        super().__init__()
        self.weigh = nn.Parameter(torch.ones(4))  # the network: how much each column counts
        self.layers = nn.ModuleList(EigenvectorLayer(K) for _ in range(24))
        self.register_buffer("start", random_orthonormal(N, K))

    def graph(self, x: torch.Tensor) -> torch.Tensor:
        return laplacian(affinity(x * self.weigh, 8), normalized=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        operator, y = self.graph(x), self.start
        for layer in self.layers:
            y = layer(operator, y)
        return nn.functional.normalize(y, dim=1)


def parts() -> float:
    with torch.no_grad():
        rows = nn.functional.normalize(smallest_eigenvectors(net.graph(x), K)[1], dim=1)
    return accuracy(y[30:], KMeans(K, n_init=10, random_state=0).fit_predict(rows.numpy())[30:])


net = Spectral()
optimizer = torch.optim.Adam(net.parameters(), 0.1)
print("the other rows, before", parts())
for _ in range(120):
    rows = net(x)[known]
    loss = (rows @ rows.T - same).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("after", parts(), "columns count", net.weigh.detach().numpy().round(2))
