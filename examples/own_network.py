"""A cluster head behind a network of one's own: one layer, one loss, a plain PyTorch loop."""

import torch
from sklearn.datasets import make_blobs
from torch import nn

from diffclust.metrics import accuracy
from diffclust.nn import ClusterLayer

torch.manual_seed(0)
X, y = make_blobs(600, 20, centers=4, cluster_std=3.0, random_state=0)
x = torch.from_numpy(X).float()
x = (x - x.mean(0)) / x.std(0)

encoder = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 20))
clusters = ClusterLayer(n_clusters=4, embedding_dim=4, assignment="softmax", alpha=5.0)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters(), *clusters.parameters()], lr=3e-3)

for step in range(400):
    z = encoder(x)
    loss = nn.functional.mse_loss(decoder(z), x)
    if step == 200:
        clusters.place(z.detach())
    if step >= 200:
        loss = loss + 0.1 * clusters.loss(z)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print(f"accuracy {accuracy(y, clusters(encoder(x)).argmax(1).numpy()):.3f}")
