"""One file per paper, and the list of them. Reading the list imports none of them."""

from importlib import import_module
from typing import Any, NamedTuple


class Method(NamedTuple):
    name: str  # on the command line
    estimator: str
    module: str
    title: str
    paper: str

    def load(self) -> Any:
        return getattr(import_module(f".{self.module}", __name__), self.estimator)


METHODS = (
    Method(
        "tell",
        "TELL",
        "tell",
        "k-means on a learnt sphere; the weights are the centres",
        "Peng et al., XAI Beyond Classification: Interpretable Neural Clustering, JMLR 2022",
    ),
    Method(
        "kmeansnet",
        "KMeansNet",
        "kmeansnet",
        "k-means as a layer with soft assignment",
        "Peng et al., k-meansNet: When k-means Meets Differentiable Programming, 2018",
    ),
)
