"""Small random changes of images that leave their meaning alone."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def jitter(x: Tensor, strength: float = 1.0) -> Tensor:
    """Turn, zoom, shear and shift each image (b, c, h, w) a little: at strength 1 by at most 15 degrees, 10 %,
    10 % and 8 % of its width. What comes in from outside is the border's value."""
    b = len(x)
    u = (2 * torch.rand(6, b, device=x.device, dtype=x.dtype) - 1) * strength  # each in [-strength, strength]
    angle = u[0] * math.radians(15)
    across, down = 1 + 0.1 * u[1], 1 + 0.1 * u[2]
    cos, sin, shear = angle.cos(), angle.sin(), 0.1 * u[3]
    rows = [
        across * (cos + shear * sin),
        across * (shear * cos - sin),
        0.16 * u[4],
        down * sin,
        down * cos,
        0.16 * u[5],
    ]
    theta = torch.stack(rows, dim=1).view(b, 2, 3)
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="border", align_corners=False)
