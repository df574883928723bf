"""Rows of the classical methods, next to the figures that the papers print for them.

They have our defaults, on raw pixels or on the embedding that the table's own method learns; the papers print the best
of several settings, chosen by labels. Methods with n x n matrices are run with up to 10,000 samples.
"""

from .spec import Row, Spec

# printed name -> ours. The papers call locally consistent concept factorisation NMF or NMF-LP.
NAMES = {
    "FCM": "fuzzy",
    "SC": "spectral",
    "LRR": "lrr",
    "LRSC": "lrsc",
    "LSR1": "lsr1",
    "LSR2": "lsr2",
    "SLRR": "slrr",
    "SMR": "smr",
    "SSC": "ssc",
    "SEC": "sec",
    "LSC-R": "lsc-r",
    "LSC-K": "lsc-k",
    "NMF": "nmf-lp",
    "NMF-LP": "nmf-lp",
    "ZAC": "zac",
    "ACAL": "agglomerative-average",
    "ACWL": "agglomerative-weighted",
}
SQUARE = ("lrr", "lrsc", "lsr1", "lsr2", "smr", "agglomerative-average", "agglomerative-weighted")
SEEDLESS = ("zac", "agglomerative-average", "agglomerative-weighted")
SIGNED = "not run here: the features have negative values"


def reason(method: str, n: int) -> str:
    """Why a method is not run on this many samples, or empty."""
    if n <= 10_000:
        return ""
    if method in SQUARE:
        size = f"{8e-9 * n**2:.0f} GB for {n:,} rows"
        return f"not run here: it holds several n x n matrices, each {size}; above 10,000 rows it was not tried"
    if method == "ssc" and n > 20_000:
        return "not run here: three quarters of an hour a run; benchmarks/ssc_mnist.py has one"
    return f"not run here: {n:,} rows merge pair by pair, for hours" if method == "zac" else ""


def classical_rows(
    data: str,
    published: tuple[str, str],
    printed: tuple[str, ...],
    n: int,
    *,
    features: Spec | None = None,
    signed: bool = False,
    said: str = "",
    k: int = 10,
    seeds: int = 3,
) -> list[Row]:
    """A row for each printed name; `published`: data set and variant of the published lines.

    Args:
        signed: the features have negative values, which a non-negative factorisation cannot take.
        said: text at the end of every label.
    """
    rows = []
    for name in printed:
        method = NAMES[name]
        line = (published[0], name, published[1])
        why = SIGNED if signed and method == "nmf-lp" else reason(method, n)
        label = f"{name}, {'features' if features else 'pixels'}{said}"
        if why:
            rows.append(Row(label, published=line, reason=why))
        else:
            spec = Spec(data, method, changes={"n_clusters": k}, features=features)
            rows.append(Row(label, spec, line, seeds=1 if method in SEEDLESS else seeds))
    return rows
