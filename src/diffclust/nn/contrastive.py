"""A contrastive loss: two augmentations of one sample get similar codes, those of two samples do not.

Chen, Kornblith, Norouzi, Hinton: "A Simple Framework for Contrastive Learning of Visual Representations", ICML 2020.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

TEMPERATURE = 0.5  # the paper's, for short training


def contrastive_loss(a: Tensor, b: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """For unit-length codes a_i and b_i (n, d) of two augmentations of sample i, the mean over all 2n codes u of::

    -log( exp(u · v / τ) / Σ_{w ≠ u} exp(u · w / τ) ),   v the code of the other augmentation of the same sample
    """
    with torch.autocast(a.device.type, enabled=False):
        u = F.normalize(torch.cat([a, b]), dim=1)
        similarity = u @ u.T / temperature
        similarity = similarity.masked_fill(torch.eye(len(u), dtype=torch.bool, device=u.device), -torch.inf)
        partner = torch.arange(len(u), device=u.device).roll(len(a))
        return F.cross_entropy(similarity, partner)
