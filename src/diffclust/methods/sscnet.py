"""SSCNet: sparse subspace clustering, learnt, so that it trains in batches and answers for new rows.

"SSCNet: learning-based subspace clustering": unrolled L-ADMM, eigenvectors by descent on the Stiefel manifold and
self-labelling. The misprints of its formulas are mended here.

(a) Sparse codes. A few blocks of L-ADMM (`nn.LADMMBlock`) write a sample by a dictionary, X ≈ A(Z), with::

        L1 = Σ_i w_i |E_i| + λ |Z|_1,   w_i = 1 - q_i / Σq,   q_i = 1 / (1 + |E_i|)

    so that rows which are written badly count a little more (the weights are near one: they hardly matter).

(b) A graph of the codes, `W_ij = exp(-|z_i - z_j|² / σ_i)` for the nearest neighbours, its Laplacian L, and a stack of
    eigenvector layers (`nn.EigenvectorLayer`) that descend to orthonormal Y from a fixed start::

        L_e = tr(YᵀLY)

(c) Self-labelling. Clusters found by k-means in a spectral space are pseudo-labels, which a classifier learns (L_K).

Steps take turns, by their count modulo 3: L1;  L1 + c1 L_e;  L1 + c1 L_e + c2 L_K. The end is when the pseudo-labels
rest. The three parts are put together in three ways: as we do by default (`sscnet_codes`), as the paper does
(`sscnet_paper`), and with an encoder in the place of (a) and (b), for rows that lie in no subspaces (`sscnet_rows`).
"""

import math
from typing import Any, ClassVar, Literal

from ..engine.data import Data, batches
from ..engine.model import ClusterModel, Trainable
from ..engine.rows import Rows
from ..estimator import networks
from ..estimator.base import PrototypeClusterer
from ..estimator.knobs import knob
from ..estimator.settings import hyperparameters
from ..estimator.streams import Arrived
from ..nn.autoencoders import Autoencoder, ScaledRows
from ..nn.cluster import ClusterLayer
from ..nn.graph import Graph
from .planes import lie_near_planes
from .sscnet_codes import CodesModel, SparseCoding
from .sscnet_paper import PaperModel
from .sscnet_rows import NeighbourModel

STEPS_OF_DICTIONARY, MOST_EPOCHS = 150, 50  # of a dictionary of rows alone
ONLINE = 0.1  # share of the way a centre goes to its rows of an arriving batch of 256; less for a smaller one


@hyperparameters
class SSCNet(PrototypeClusterer):
    """Learnt sparse subspace clustering: for data that lie on planes rather than in balls, in batches, and with an
    answer for new rows.

    Shared parameters: see `PrototypeClusterer`. The default, pipeline="codes", is a network of ours out of the paper's
    parts, not the paper's system. Of images it has the codes of TELL's convolutional network, trained on jittered
    images (`augment`), one block of L-ADMM, pseudo-labels by spectral clustering of references, and a classifier that
    reads the codes. Of rows it looks first whether they lie near subspaces: whether the graph of who is written by whom
    falls into `n_clusters` parts more clearly than that of who is near whom. If so, rows of the data are a dictionary
    for the others; if not, an encoder learns by neighbours, as in the other methods, k-means clusters of what it gives
    are the pseudo-labels, and k-means on the rows is kept where the network is not clearly better. network="dictionary"
    or features="neighbours" says which.

    `SSCNet.paper("usps")` is the paper's system, pipeline="paper", with its settings as far as they are printed;
    epochs, the number of layers, the truncation, first weights and the width of the classifier are not. Every block has
    convolutional dictionaries of its own, eigenvector layers follow the graph of a batch, a learnt map G brings what
    they give into one space, k-means there makes the pseudo-labels, and a classifier reads G; images are as they are.
    Taken literally its loss has a minimum without any codes, and need not stay finite. pipeline="references" is that
    system, mended where it is so. In both a row is answered beside a kept batch of references, so that its label does
    not depend on its company, where in the paper it does.

    embedding_dim is the width of the classifier's last layer, and of the codes of a network. Decoding goes by way of
    the rows nearest to the centres. With fewer rows in a batch than `n_neighbors` or `n_clusters`, as many as there are
    count.

    Args:
        pipeline: "codes", "paper" or "references", as above.
        n_blocks: L-ADMM blocks; 0 leaves the network's own codes. "auto": 4 for dictionaries, 1 around other networks.
        n_atoms: of the dictionary of rows; no more than there are rows.
        n_neighbors: of a row in the graph.
        graph: "knn" (that many neighbours), or "full" (all pairs, the paper's dense form).
        n_layers: eigenvector layers.
        cap: of the step of such a layer; None is `0.8 / |PY|`. With the paper's 0.01 hundreds of layers are needed.
        sparsity: λ, of `|Z|_1` in L1; the dictionary of rows starts as L-ADMM with this weight.
        spectral_weight: c1, of the trace tr(YᵀLY).
        weight: c2, of the classifier's cross-entropy.
        views: c3, of the term by which two random changes of an image (`augment`) have like codes and those of two
            images have not; 0, as in the paper: none. For photographs, with augment="photos", network="residual" and an
            embedding_dim of some dozens.
        sample_weights: weigh rows by w; False counts them all alike.
        truncation: of `|E_i|` in w, for the paper's pipelines; None for none.
        reference_size: rows whose graph is cut for the pseudo-labels. Memory grows with its square, never with that of
            n.
        tolerance: share of pseudo-labels that may change in a calm epoch; five such end the training.
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

    places: ClassVar[bool] = False
    unjoinable: ClassVar[str] = "its clusters do not begin with centres"
    by_distance: ClassVar[bool] = False  # a plane goes on for ever
    indivisible: ClassVar[str] = "its graph is of all rows of a batch"
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
        """Rows near subspaces are written by a dictionary, others are known by their neighbours; images have codes."""
        if self.features == "neighbours" or len(rows.row_shape) != 1 or not super()._by_neighbours(rows):
            return self.features == "neighbours"
        return self.pipeline == "codes" and not lie_near_planes(rows, self.n_clusters)

    def _epochs(self, wish: int | str, data: Data, phase: int) -> int:
        """A dictionary of rows needs little training before: its blocks start as the algorithm itself."""
        if wish == "auto" and phase == 0 and len(data.row_shape) == 1 and data.graph is None:
            return math.ceil(min(MOST_EPOCHS, STEPS_OF_DICTIONARY / data.steps))
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

    def offline(self) -> str:
        return ""

    def online_step(self, model: Any, arrived: Arrived) -> None:
        """The centres of the classifier follow the new rows; codes and classifier rest."""
        model.clusters.move_(arrived.z, ONLINE * min(1.0, len(arrived.z) / 256))

    def online_learner(self, model: ClusterModel) -> Trainable:
        raise ValueError("learn_network=True: the pseudo-labels that SSCNet's network learns are those of all rows.")

    def build_model(self, autoencoder: Autoencoder, n_samples: int) -> CodesModel:
        by_neighbours = self.pipeline == "codes" and isinstance(autoencoder, ScaledRows)
        has_views = self.pipeline == "codes" and not by_neighbours and self._augmentation(autoencoder.input_shape)
        if self.views and not has_views:
            raise ValueError(
                f"views={self.views:g} needs samples that are changed at random, as images are by augment=0.5 or "
                "'photos', and pipeline='codes'."
            )
        width = autoencoder.embedding_dim if by_neighbours else self.embedding_dim
        clusters = ClusterLayer(self.n_clusters, width, assignment="softmax")
        if by_neighbours:
            return NeighbourModel(autoencoder, clusters, self)
        if self.pipeline == "codes":
            return CodesModel(autoencoder, clusters, self)
        return PaperModel(autoencoder, clusters, self, batches(n_samples, self._batch_size(n_samples))[1])
