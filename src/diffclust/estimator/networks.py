"""Choose and build a network from the data: its kind, its scaling, its output activation."""

import copy
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..engine.data import Data, Summary
from ..engine.rows import Rows, TensorRows
from ..engine.runtime import seeded
from ..nn.autoencoders import NETWORKS, Autoencoder, Identity, ScaledRows, Wrapped
from ..nn.autoencoders.images import Convolutional
from ..nn.autoencoders.rows import FEW_COLUMNS
from ..nn.dimension import local_dimension
from ..reading.origin import origin_of

ROUNDING = 1e-6  # relative error of values that were computed in float32
SPARSE = 0.5  # non-negative rows with a larger share of zeros are counts, words or categories
OTHER_UNITS = 5.0  # columns have different units if the ranges of wide ones are this many times those of narrow ones
ONE_FAR = 10.0  # or if one range is this many times the median range
TWO_VALUES = 2**-0.5  # distance of the two values of a binary column, if others have a standard deviation of one
MANY_COLUMNS = 100  # rows with more columns are reduced to this many principal components
UNIT_ROWS, UNIT_VALUES = 10_000, 2**26  # largest sample for the principal components: rows, and values
FEW_WAYS = 5.0  # images with a smaller intrinsic dimension are views of the same objects
FEWEST_VIEWS = 100  # with fewer images this cannot be estimated
VIEWS_ASKED, VIEWS_COMPARED = 500, 20_000  # images it is estimated on, and images they are compared with
COARSE = 16  # pixels a side of these images: the noise of single pixels is averaged away
CONVOLVED = 32  # about so many pixels on the shorter side for convolutions: twice as many take four times as long
ONE_LENGTH = 1.01  # rows have one length if the longest is at most this many times the shortest


def choose_kind(wish: str, row_shape: tuple[int, ...]) -> str:
    """Rows -> dense, images -> convolutional."""
    if wish == "auto":
        return "conv" if len(row_shape) == 3 else "dense"
    if wish not in NETWORKS:
        raise ValueError(f"network={wish!r} should be 'auto', one of {', '.join(sorted(NETWORKS))}, or a module.")
    return wish


def units(values: Summary, row_shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Shift and scale to the network's units.

    Rows are centred and divided by one number for all features, so that the geometry is kept. Images that fill [0, 1]
    stay as they are, others are stretched to it.
    """
    if len(row_shape) != 3:
        return values.mean.cpu(), torch.tensor(values.spread or 1.0)
    if values.low >= 0 and 0.5 <= values.high <= 1 + ROUNDING:
        return torch.zeros(()), torch.ones(())
    return torch.tensor(values.low), torch.tensor(values.high - values.low or 1.0)


def shrink(row_shape: tuple[int, ...]) -> int:
    """The factor by which images are made smaller for convolutions: to about `CONVOLVED` pixels on the shorter side."""
    return max(1, round(min(row_shape[1:]) / CONVOLVED))


class RowUnits(NamedTuple):
    """The scaling of each column of a table: (x - shift) / scale, or the asinh of that."""

    shift: Tensor
    scale: Tensor
    asinh: bool = False


def row_units(values: Summary) -> RowUnits:
    """The scaling of each column of a table, chosen from its values.

    If columns have different units (the 95 % quantile of the column ranges is more than `OTHER_UNITS` times the 5 %
    quantile, or one range more than `ONE_FAR` times the median, as an age among grades), each is divided by its
    standard deviation, and extreme values are damped; the values of a binary column are placed `TWO_VALUES` apart,
    because divided by its deviation it would outweigh the others. If values are mostly zeros and none is negative
    (counts, words, categories), of one unit or with many columns, each is divided by the square root of its standard
    deviation, so that common columns count less and rare ones are not inflated. Otherwise (pixels, curves, embeddings)
    all are divided by one number. Constant columns do not count.
    """
    shift, deviation, reach = (part.cpu() for part in (values.mean, values.deviation.double(), values.reach.double()))
    varies = deviation > 1e-6 * torch.maximum(shift.double().abs(), reach)
    if not bool(varies.any()):
        return RowUnits(shift, torch.ones_like(shift))
    wide, usual, narrow = (reach[varies].quantile(share) for share in (0.95, 0.5, 0.05))
    differ = wide > OTHER_UNITS * narrow or reach[varies].max() > ONE_FAR * usual
    asinh = False
    counts = is_sparse(values)
    if differ and not (counts and len(reach) > MANY_COLUMNS):
        scale = torch.where(values.two_valued.cpu(), reach / TWO_VALUES, deviation)
        asinh = True
    elif counts:
        scale = deviation.sqrt()
    else:
        scale = deviation[varies].mean().expand_as(deviation)
    return RowUnits(shift, torch.where(varies, scale, 1.0).float(), asinh)


def is_sparse(values: Summary) -> bool:
    """Whether rows are counts, words or categories: mostly zeros, and no negative values."""
    return values.nonnegative and values.zeros > SPARSE


def even_units(values: Summary, each: bool) -> Tensor:
    """The standard deviation of each column, or of all values together; 1 for constant columns."""
    deviation = values.deviation.cpu()
    scale = deviation if each else torch.full_like(deviation, values.spread)
    return torch.where((deviation > 0) & (scale > 0), scale, 1.0)


def column_units(data: Data) -> RowUnits:
    """The scaling of each column: given by the table or the user, otherwise chosen from the values.

    Rows that consist only of categories are not scaled: they have equal lengths, and the cosine of two rows is the
    share of categories in which they agree. Centred, rows of common values near the mean would be pulled apart.
    """
    values = data.summary
    if len(data.row_shape) == 3:  # pixels are of one unit
        return RowUnits(values.mean.cpu(), even_units(values, each=False))
    evenly = data.scale is None or bool((data.scale == data.scale[0]).all())
    if evenly and are_choices(values):
        return RowUnits(torch.zeros_like(values.mean).cpu(), torch.ones_like(values.mean).cpu())
    return row_units(values) if data.scale is None else RowUnits(values.mean.cpu(), data.scale)


def in_column_units(rows: np.ndarray, scale: np.ndarray | None = None) -> np.ndarray | None:
    """Rows (n, d) with each column in the unit that a network would give it, for methods without a network; None where
    all columns are of one unit, and for words, so that rows stay as they are. Zero stays zero unless extreme values are
    damped.

    Args:
        scale: what the columns of a table of mixed kinds are divided by (`Columns.scale`).
    """
    given = TensorRows(torch.from_numpy(np.array(rows, np.float64)))
    data = Data(given.subtract_origin(origin_of(given)), torch.device("cpu"))
    data.scale = None if scale is None else torch.from_numpy(scale).float()
    if compared_as_they_are(data):
        return None
    found = column_units(data)
    of_each = found.scale[data.summary.reach > 0]
    if not found.asinh and (not len(of_each) or bool((of_each == of_each[0]).all())):
        return None
    divided = found.scale.double().numpy()
    return np.asarray(np.arcsinh((rows - rows.mean(0)) / divided) if found.asinh else rows / divided)


def are_choices(values: Summary) -> bool:
    """Whether rows are one-hot categories and nothing else: zeros and ones, with the same number of ones in every
    row."""
    binary = bool((values.two_valued | (values.reach == 0)).all()) and values.low == 0 and values.high == 1
    return binary and values.longest <= (1 + ROUNDING) * values.shortest


def are_views(images: Rows) -> bool:
    """Whether images are views of the same objects (turned, lit from another side, filmed): their intrinsic dimension
    is small. Then images with similar pixels show the same object.

    Images made one by one, such as handwritten digits and photographs, vary in many directions at once, and pixel
    distance is less informative. There an autoencoder finds more, because augmentation teaches it to ignore small
    shifts and rotations.
    """
    n = min(len(images), VIEWS_COMPARED)
    if n < FEWEST_VIEWS:
        return False
    index = torch.linspace(0, len(images) - 1, n, dtype=torch.float64).long()
    _, h, w = images.row_shape
    coarse = min(h, COARSE), min(w, COARSE)
    parts = (images.take(part).cpu().float() / images.divisor for part in index.split(1024))
    x = torch.cat([F.adaptive_avg_pool2d(part, coarse).flatten(1) for part in parts])
    some = torch.linspace(0, n - 1, min(n, VIEWS_ASKED), dtype=torch.float64).long()
    return bool(x.isfinite().all()) and local_dimension(x, some) < FEW_WAYS  # what is not finite is refused later


def scaled_rows(data: Data) -> ScaledRows:
    """The scaled rows; the scaling is computed once for all networks of a fit."""
    if data.scaled is None:
        units_of_columns = column_units(data)
        width = data.summary.mean.numel()
        components = MANY_COLUMNS if width > MANY_COLUMNS else 0
        directions = width > FEW_COLUMNS or data.scale is not None  # in given units nothing else damps extreme values
        data.scaled = ScaledRows(data.row_shape, 0, "linear", components, units_of_columns.asinh, directions)
        size = min(len(data), UNIT_ROWS, max(2 * MANY_COLUMNS, UNIT_VALUES // width))
        index = torch.linspace(0, len(data) - 1, size, dtype=torch.float64).long().to(data.device)
        rows = torch.cat([data.take_checked(part).cpu() for part in index.split(data.chunk)])
        with seeded(0, data.device):  # principal components of many columns are found by iterations
            data.scaled.set_rows(units_of_columns.shift, units_of_columns.scale, rows)
    return data.scaled


def compared_as_they_are(data: Data) -> bool:
    """Whether rows are words or categories of one length, as from tf-idf. Then neighbours are found by the cosine of
    the unscaled rows."""
    values = data.summary
    one_length = values.longest <= ONE_LENGTH * values.shortest
    return len(data.row_shape) == 1 and data.scale is None and is_sparse(values) and one_length


def build(
    wish: str | nn.Module,
    data: Data,
    embedding_dim: int,
    options: dict[str, dict[str, Any]],
    rescale: bool | Literal["mean"] = True,
    neighbours: bool = False,
) -> Autoencoder:
    """A new network for the data; "auto" is the one for `neighbours` if the encoder learns from the neighbour graph.
    `options` are the method's own settings for each kind of network. Without `rescale` it takes unscaled values, and
    with "mean" values minus the mean of each column; its output is then linear."""
    if isinstance(wish, Autoencoder):
        return _copy(wish, data)
    if isinstance(wish, nn.Module):
        return _wrap(wish, data)
    kind = "rows" if wish == "auto" and neighbours else choose_kind(wish, data.row_shape)
    values = data.summary
    cls = NETWORKS[kind]
    if issubclass(cls, ScaledRows):
        units_of_rows = scaled_rows(data)
        width = 0 if cls is ScaledRows else embedding_dim
        settings = {name: units_of_rows.config[name] for name in ("components", "asinh", "directions")}
        network = cls(data.row_shape, width, **settings, **options.get(kind, {}))
        network.take_units(units_of_rows)
        return network
    if kind == "identity":
        return Identity(data.row_shape)
    shift, scale = torch.zeros(()), torch.ones(())
    if rescale is True:
        shift, scale = units(values, data.row_shape) if data.scale is None else (values.mean.cpu(), data.scale)
    if rescale == "mean":
        shift = values.mean.cpu()
    bounded = rescale is True and len(data.row_shape) == 3
    smaller = {"shrink": shrink(data.row_shape)} if issubclass(cls, Convolutional) else {}
    plain = cls(
        data.row_shape,
        embedding_dim,
        output="sigmoid" if bounded else "linear",
        **{**smaller, **options.get(kind, {})},
    )
    plain.set_units(shift, scale)
    return plain


def _copy(network: Autoencoder, data: Data) -> Autoencoder:
    """A copy of one of our own networks, perhaps already trained: training continues from its weights and scaling."""
    if network.input_shape != data.row_shape:
        raise ValueError(f"network: it takes samples {network.input_shape}, and these are {data.row_shape}.")
    _ = data.summary  # refuses what is not finite
    return copy.deepcopy(network)


def _wrap(module: nn.Module, data: Data) -> Autoencoder:
    """A copy of the user's module, tried on two rows so that an error shows before training."""
    for name in ("encode", "decode"):
        if not callable(getattr(module, name, None)):
            raise TypeError(f"network: {type(module).__name__} has no method {name!r}.")
    _ = data.summary  # refuses what is not finite
    module = copy.deepcopy(module).to(data.device).eval()
    x = data.take(torch.arange(min(2, len(data)), device=data.device))
    with torch.no_grad():
        try:
            z = module.encode(x)  # type: ignore[operator]
            back = module.decode(z)  # type: ignore[operator]
        except (RuntimeError, TypeError, AttributeError) as error:
            raise ValueError(
                f"network: {type(module).__name__} does not take samples {data.row_shape}: {error}"
            ) from None
    if z.ndim != 2 or len(z) != len(x):
        raise ValueError(f"network: encode gave shape {tuple(z.shape)}, expected ({len(x)}, embedding_dim).")
    if back.shape != x.shape:
        raise ValueError(f"network: decode gave shape {tuple(back.shape)}, expected {tuple(x.shape)} as it went in.")
    return Wrapped(module, data.row_shape, z.shape[1])
