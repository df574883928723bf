"""SSCNet's networks, whose codes are sparse: dictionaries for rows and for images."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import Autoencoder, Output
from .images import image_shape

SAME = 1e-5  # a cosine this close to one is the same row


class RowDictionary(Autoencoder):
    """Samples as combinations of samples: a linear dictionary of `embedding_dim` atoms which starts as rows of the
    data (`set_atoms`), so that the sparse code of a sample shows which other samples reconstruct it, as in subspace
    clustering. Samples are scaled to length one."""

    atoms: Tensor  # the rows the dictionary started from

    def __init__(self, input_shape: Sequence[int], embedding_dim: int = 512, output: Output = "linear") -> None:
        super().__init__(input_shape, embedding_dim, "linear")
        d = int(torch.Size(self.input_shape).numel())
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(d, embedding_dim, bias=False))
        self.decoder = nn.Linear(embedding_dim, d, bias=False).requires_grad_(False)
        self.register_buffer("atoms", torch.zeros(embedding_dim, d))

    @torch.no_grad()
    def set_atoms(self, x: Tensor) -> float:
        """Set the atoms, rows in the network's units. Returns the largest step that L-ADMM allows, the scale of A'."""
        atoms = F.normalize(x.flatten(1), dim=1)
        step = 0.99 / torch.linalg.matrix_norm(atoms.double(), 2).clamp_min(1e-6).square().item()
        self.atoms.copy_(atoms)
        self.decoder.weight.copy_(atoms.T)  # type: ignore[operator]
        self.encoder[1].weight.copy_(step * atoms)  # type: ignore[index]
        return step

    def others(self, x: Tensor) -> Tensor:
        """One for the atoms that a sample of length one may use, zero for atoms equal to the sample: (b, atoms)."""
        with torch.autocast(x.device.type, enabled=False):  # in bf16 a cosine of one would be too inexact
            return ((x.flatten(1) @ self.atoms.T).abs() < 1 - SAME).to(x.dtype)


class ConvDictionary(Autoencoder):
    """SSCNet's dictionary for images: 3x3 convolutions of stride 2 with 32, 64 and 128 maps, mirrored, with only
    ReLU between them; the codes are the last maps. DSC-Net has other `maps`.

    Args:
        maps: number of maps of each layer. With three strides of 2 and 128 maps there are twice as many codes as pixels
            of a grey image.
        he: initial weights as in He et al., and biases zero: codes are then about as large as pixels, and the paper's
            threshold of 0.15 keeps most of them. With torch's initial weights it keeps less than one in a hundred.
        rectified: as in DSC-Net: ReLU also after the codes and after the image, initial weights as in Glorot and
            Bengio, and biases zero, so that a black background has no codes.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        embedding_dim: int = 0,
        output: Output = "linear",
        maps: Sequence[int] = (32, 64, 128),
        he: bool = False,
        rectified: bool = False,
    ) -> None:
        c, h, w = image_shape(tuple(input_shape), 4, "conv-dictionary")
        sizes = [(h, w)]
        for _ in maps:
            sizes.append(((sizes[-1][0] + 1) // 2, (sizes[-1][1] + 1) // 2))
        super().__init__(input_shape, maps[-1] * sizes[-1][0] * sizes[-1][1], "linear")
        self.config |= {"maps": list(maps), "he": he, "rectified": rectified}
        maps = (c, *maps)
        down: list[nn.Module] = []
        up: list[nn.Module] = []
        for i in range(len(sizes) - 1):
            down += [nn.ReLU()] if i else []
            down.append(nn.Conv2d(maps[i], maps[i + 1], 3, 2, 1))
            extra = (1 - sizes[i][0] % 2, 1 - sizes[i][1] % 2)  # what rounding lost at a stride of 2
            up = [nn.ConvTranspose2d(maps[i + 1], maps[i], 3, 2, 1, output_padding=extra), *up]
            up = [nn.ReLU(), *up] if i < len(sizes) - 2 else up
        last = [nn.ReLU()] if rectified else []
        self.encoder = nn.Sequential(*down, *last, nn.Flatten())
        self.decoder = nn.Sequential(nn.Unflatten(1, (maps[-1], *sizes[-1])), *up, *last)
        if he or rectified:
            draw = nn.init.kaiming_uniform_ if he else nn.init.xavier_uniform_
            for layer in (*down[::2], *up[::2]):
                draw(layer.weight)  # type: ignore[arg-type]
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
