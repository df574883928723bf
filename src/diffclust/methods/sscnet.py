"""SSCNet: learnt sparse subspace clustering, which trains in batches and can label new rows.

"SSCNet: learning-based subspace clustering": unrolled L-ADMM, eigenvectors by descent on the Stiefel manifold and
self-labelling. The misprints in its formulas are corrected here.

(a) Sparse codes. A few blocks of L-ADMM (`nn.LADMMBlock`) reconstruct a sample from a dictionary, X ≈ A(Z), with::

        L1 = Σ_i w_i |E_i| + λ |Z|_1,   w_i = 1 - q_i / Σq,   q_i = 1 / (1 + |E_i|)

    so that badly reconstructed rows have slightly more weight (the weights are close to one and hardly matter).

(b) A graph of the codes, `W_ij = exp(-|z_i - z_j|² / σ_i)` for the nearest neighbours, its Laplacian L, and a stack of
    eigenvector layers (`nn.EigenvectorLayer`) that descend to orthonormal Y from a fixed start::

        L_e = tr(YᵀLY)

(c) Self-labelling. k-means clusters in a spectral space are pseudo-labels, on which a classifier is trained (L_K).

Steps alternate between three losses, by their count modulo 3: L1;  L1 + c1 L_e;  L1 + c1 L_e + c2 L_K. Training stops
when the pseudo-labels stop changing. The parts are combined in three ways: our default (`sscnet_codes`), the paper's
(`sscnet_paper`), and with an encoder instead of (a) and (b), for rows that are not near subspaces (`sscnet_rows`).
"""

import math
from typing import Any, ClassVar, Literal

from ..engine.data import Data, batches
from ..engine.model import ClusterModel, Trainable
from ..engine.rows import Rows
from ..estimator import networks
from ..estimator.base import PrototypeClusterer
from ..estimator.knobs import knob
from ..estimator.online import OnlineBatch
from ..estimator.settings import hyperparameters
from ..nn.autoencoders import Autoencoder, ScaledRows
from ..nn.cluster import ClusterLayer
from ..nn.graph import Graph
from .sscnet_codes import CodesModel, SparseCoding
from .sscnet_paper import PaperModel
from .sscnet_rows import NeighbourModel
from .subspace_check import lie_near_subspaces

STEPS_OF_DICTIONARY, MAX_EPOCHS = 150, 50  # of pretraining, for a dictionary of rows
ONLINE_STEP = 0.1  # how far a centre moves towards the mean of its rows in a batch of 256; less for smaller batches


@hyperparameters
class SSCNet(PrototypeClusterer):
    """Learnt sparse subspace clustering: for data near planes rather than balls, trained in batches, with labels for
    new rows.

    Shared parameters: see `PrototypeClusterer`. The default, pipeline="codes", is our own network built from the
    paper's parts, not the paper's system. For images it has the codes of TELL's convolutional network, trained with
    augmentation (`augment`), one block of L-ADMM, pseudo-labels from spectral clustering of reference rows, and a
    classifier on the codes. For rows it first tests whether they lie near subspaces: whether the self-expression graph
    falls into `n_clusters` parts more clearly than the neighbour graph. If so, rows of the data are a dictionary for
    the others. If not, an encoder learns from the neighbour graph, as in the other methods, its k-means clusters are
    the pseudo-labels, and the estimator falls back to k-means on the rows if the network is not clearly better.
    network="dictionary" or features="neighbours" decides this.

    `SSCNet.paper("usps")` is the paper's system, pipeline="paper", with its printed settings; the number of epochs and
    layers, the truncation, the initial weights and the width of the classifier are not printed. Every block has its own
    convolutional dictionaries, eigenvector layers follow the graph of a batch, a learnt map G brings their output into
    one space, k-means there gives the pseudo-labels, and a classifier reads G; images are not augmented. Taken
    literally, its loss has a minimum without any codes, and may become infinite. pipeline="references" is that system
    with this repaired. In both, a row is labelled together with a fixed batch of reference rows, so its label does not
    depend on the other rows of the batch, as it does in the paper.

    embedding_dim is the width of the classifier's last layer, and of the codes of a network. Centres are decoded by the
    rows nearest to them. If a batch has fewer rows than `n_neighbors` or `n_clusters`, the number of rows is used.

    Args:
        pipeline: "codes", "paper" or "references", as above.
        n_blocks: number of L-ADMM blocks; 0 uses the network's own codes. "auto": 4 for dictionaries, 1 around other
            networks.
        n_atoms: size of the dictionary of rows; at most the number of rows.
        n_neighbors: number of neighbours of a row in the graph.
        graph: "knn" (that many neighbours), or "full" (all pairs, the paper's dense form).
        n_layers: number of eigenvector layers.
        cap: limit on the step of such a layer; None is `0.8 / |PY|`. With the paper's 0.01, hundreds of layers are
            needed.
        sparsity: λ, of `|Z|_1` in L1; the dictionary of rows starts as L-ADMM with this weight.
        spectral_weight: c1, of the trace tr(YᵀLY).
        weight: c2, of the classifier's cross-entropy.
        views: c3, weight of a contrastive term: two augmentations of an image (`augment`) get similar codes, two images
            do not; 0, as in the paper: none. For photographs, with augment="photos", network="residual" and an
            embedding_dim of some dozens.
        sample_weights: weight rows by w; False gives all rows the same weight.
        truncation: of `|E_i|` in w, for the paper's pipelines; None for none.
        reference_size: number of reference rows whose graph gives the pseudo-labels. Memory grows with its square,
            never with that of n.
        tolerance: an epoch is calm if at most this share of the pseudo-labels changes; training stops after five calm
            epochs.
    """

    pipeline: Literal["codes", "paper", "references"] = knob("codes")
    n_blocks: int | Literal["auto"] = knob("auto", low=0)
    n_atoms: int = knob(512, low=1)
    n_neighbors: int = knob(10, low=1)
    graph: Graph = "knn"
    n_layers: int = knob(10, low=0)
    cap: float | None = knob(None, above=0, high=1e3)
    sparsity: float = knob(0.15, low=0)
    spectral_weight: float = knob(0.15, low=0)
    weight: float = knob(0.15, low=0)
    views: float = knob(0.0, low=0)
    sample_weights: bool = True
    truncation: float | None = knob(None, above=0)
    reference_size: int = knob(2000, low=2)
    tolerance: float = knob(1e-3, low=0, high=1)

    starts_from_centers: ClassVar[bool] = False
    why_not_overclustered: ClassVar[str] = "its clusters do not start from centres"
    by_distance: ClassVar[bool] = False  # subspaces are unbounded
    why_not_shared: ClassVar[str] = "its graph needs all rows of a batch"
    papers: ClassVar[dict[str, dict[str, Any]]] = {
        name: {
            "n_clusters": 10,
            "pipeline": "paper",
            "network": "conv-dictionary",
            "n_blocks": 4,
            "n_neighbors": 5,
            "cap": 0.01,
            "truncation": 10.0,
            "embedding_dim": 10,
            "optimizer": "sgd",
            "lr": 3e-4,
            "batch_size": 256,
            "pretrain_epochs": 0,
            "epochs": 100,
            "augment": None,
        }
        for name in ("mnist", "usps", "cifar10")
    }

    def _by_neighbours(self, rows: Rows) -> bool:
        """Rows near subspaces use a dictionary, other rows the neighbour graph; images use codes."""
        if self.features == "neighbours" or len(rows.row_shape) != 1 or not super()._by_neighbours(rows):
            return self.features == "neighbours"
        return self.pipeline == "codes" and not lie_near_subspaces(rows, self.n_clusters)

    def _epochs(self, wish: int | str, data: Data, phase: int) -> int:
        """A dictionary of rows needs little pretraining: its blocks start as the exact algorithm."""
        if wish == "auto" and phase == 0 and len(data.row_shape) == 1 and data.graph is None:
            return math.ceil(min(MAX_EPOCHS, STEPS_OF_DICTIONARY / data.steps))
        return super()._epochs(wish, data, phase)

    def network_options(self) -> dict[str, dict[str, Any]]:
        return {"conv-dictionary": {"he": self.pipeline != "codes"}}

    def build_autoencoder(self, data: Data) -> Autoencoder:
        kind = self.network
        if kind == "auto" and data.graph is not None:
            kind = "rows"
        elif kind == "auto" and len(data.row_shape) == 1:
            kind = "dictionary"
        elif kind == "auto":
            kind = "conv" if self.pipeline == "codes" else "conv-dictionary"
        width = min(int(self.n_atoms), len(data)) if kind == "dictionary" else self.embedding_dim
        return networks.build(kind, data, width, self.network_options())

    def pretraining(self, model: Any) -> SparseCoding:
        return SparseCoding(model)

    def why_not_online(self) -> str:
        return ""

    def online_step(self, model: Any, batch: OnlineBatch) -> None:
        """The centres of the classifier follow the new rows; codes and classifier are fixed."""
        model.clusters.move_(batch.z, ONLINE_STEP * min(1.0, len(batch.z) / 256))

    def online_learner(self, model: ClusterModel) -> Trainable:
        raise ValueError("learn_network=True: SSCNet's network learns from pseudo-labels of all rows.")

    def build_model(self, autoencoder: Autoencoder, n_samples: int) -> CodesModel:
        by_neighbours = self.pipeline == "codes" and isinstance(autoencoder, ScaledRows)
        has_views = self.pipeline == "codes" and not by_neighbours and self._augmentation(autoencoder.input_shape)
        if self.views and not has_views:
            raise ValueError(
                f"views={self.views:g} needs random augmentation, such as augment=0.5 or 'photos' for images, "
                "and pipeline='codes'."
            )
        width = autoencoder.embedding_dim if by_neighbours else self.embedding_dim
        clusters = ClusterLayer(self.n_clusters, width, assignment="softmax")
        if by_neighbours:
            return NeighbourModel(autoencoder, clusters, self)
        if self.pipeline == "codes":
            return CodesModel(autoencoder, clusters, self)
        return PaperModel(autoencoder, clusters, self, batches(n_samples, self._batch_size(n_samples))[1])
