"""Random augmentations of images that keep their class."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def jitter(x: Tensor, strength: float = 1.0) -> Tensor:
    """Rotate, zoom, shear and shift each image (b, c, h, w) a little: at strength 1 by at most 15 degrees, 10 %, 10 %
    and 8 % of its width. Pixels from outside get the value of the border."""
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


def photo_jitter(x: Tensor, strength: float = 1.0) -> Tensor:
    """Augment photographs (b, c, h, w): a random crop of each, resized, mirrored with probability one half, with
    changed light. At strength 1 the crop has 0.5 to 1 of the width and height, contrast and brightness change by at
    most 40 %, colours by 40 %, and one image in five becomes grey. Values stay within those of the batch."""
    b = len(x)
    u = torch.rand(9, b, device=x.device, dtype=x.dtype)
    low, high = x.amin(), x.amax()
    size = 1 - 0.5 * strength * u[0:2]  # (2, b) of the width and of the height
    middle = (1 - size) * (2 * u[2:4] - 1)
    mirrored = 2 * (u[4] < 0.5).to(x.dtype) - 1
    none = torch.zeros_like(mirrored)
    rows = [mirrored * size[0], none, middle[0], none, size[1], middle[1]]
    grid = F.affine_grid(torch.stack(rows, dim=1).view(b, 2, 3), list(x.shape), align_corners=False)
    x = F.grid_sample(x, grid, padding_mode="border", align_corners=False)

    def share(values: Tensor) -> Tensor:
        return (1 + 0.4 * strength * (2 * values - 1)).view(b, 1, 1, 1)

    grey = x.mean(1, keepdim=True)
    colour = share(u[5]) * (u[6] >= 0.2 * strength).to(x.dtype).view(b, 1, 1, 1)
    x = grey + colour * (x - grey)
    x = share(u[7]) * (x - grey.mean((2, 3), keepdim=True)) + share(u[8]) * grey.mean((2, 3), keepdim=True)
    return torch.minimum(torch.maximum(x, low), high)
