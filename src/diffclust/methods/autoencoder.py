"""Shared by the autoencoder family: centres that are parameters, layer-wise pretraining, unscaled values."""

from typing import Any, ClassVar, Literal

from torch.optim import Optimizer

from ..engine.data import Data
from ..engine.model import ClusterModel, Trainable
from ..engine.optimizers import make_optimizer
from ..engine.pretraining import LayerPretraining, NeighbourPretraining
from ..engine.rows import Rows
from ..estimator import networks
from ..estimator.base import PrototypeClusterer
from ..estimator.knobs import knob
from ..estimator.online import OnlineBatch
from ..estimator.settings import hyperparameters
from ..nn.autoencoders import Autoencoder
from ..nn.cluster import ClusterLayer


@hyperparameters
class AutoencoderClusterer(PrototypeClusterer):
    """The parameters of the autoencoder family.

    Args:
        init: initial centres: "k-means", "k-means++", "neighbours" (k-means in a layout of the neighbour graph of the
            embeddings), "random" (rows), or an array (n_clusters, embedding_dim).
        layer_epochs: epochs of greedy denoising pretraining of each layer of the dense network, before the whole
            network is trained for `pretrain_epochs`. 0: none.
        rescale: scale the values for the network, and bound its output for images. False, as in the papers: unscaled
            values and a linear output. "mean": subtract the mean of each column, linear output.
    """

    init: str | Any = "k-means"
    layer_epochs: int = knob(0, low=0)
    rescale: bool | Literal["mean"] = True

    own_optimizer: ClassVar[bool] = False  # whether `optimizer` and `lr` are for clustering only, and Adam pretrains

    def build_clusters(self, autoencoder: Autoencoder) -> ClusterLayer:
        """The method's cluster layer for this network."""
        # with α = 1/2 the weights W = 2αΩ are the centres themselves, and the optimiser's rate is theirs
        return ClusterLayer(self.n_clusters, autoencoder.embedding_dim, alpha=0.5)

    def _by_neighbours(self, rows: Rows) -> bool:
        """With features="auto", `rescale` or `layer_epochs` ask for an autoencoder as in the papers."""
        plain = self.layer_epochs == 0 and self.rescale is True
        return super()._by_neighbours(rows) and (plain or self.features == "neighbours")

    def build_autoencoder(self, data: Data) -> Autoencoder:
        by_neighbours = data.graph is not None
        return networks.build(
            self.network, data, self.embedding_dim, self.network_options(), self.rescale, neighbours=by_neighbours
        )

    def build_optimizer(self, model: Trainable) -> Optimizer | None:
        if self.own_optimizer and not isinstance(model, ClusterModel | NeighbourPretraining):
            return make_optimizer(model, "adam", None)
        return super().build_optimizer(model)

    def network_options(self) -> dict[str, dict[str, Any]]:
        return {"dense": {"glorot": True}, "conv-pool": {"glorot": True}}

    def pretraining_plan(self, model: ClusterModel, epochs: int) -> list[tuple[str, Trainable, int]]:
        depth = len(model.autoencoder.layers()) if self.layer_epochs else 0
        layers = [(f"layer {i + 1}", LayerPretraining(model, i), self.layer_epochs) for i in range(depth)]
        return [*layers, *super().pretraining_plan(model, epochs)]

    def online_step(self, model: Any, batch: OnlineBatch) -> None:
        """Each centre is the running mean of all rows it has received."""
        model.clusters.average_(batch.pull, batch.mass, batch.counts)


def paper_settings(n_clusters: int, **changes: Any) -> dict[str, Any]:
    """The settings that the papers of the family share: d-500-500-2000-k, unscaled values, batches of 256, no
    augmentation."""
    return {
        "n_clusters": n_clusters,
        "network": "dense",
        "embedding_dim": n_clusters,
        "batch_size": 256,
        "augment": None,
        "rescale": False,
        **changes,
    }
