"""One file per paper, and the list of methods. Reading the list imports none of them."""

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
    Method(
        "dkm",
        "DeepKMeans",
        "deep_kmeans",
        "k-means and the representation together, through an annealed softmax",
        "Moradi Fard et al., Deep k-Means: Jointly clustering with k-Means and learning representations, 2020",
    ),
    Method(
        "aekmeans",
        "AEKMeans",
        "ae_kmeans",
        "an autoencoder, then k-means on its embedding",
        "Hinton and Salakhutdinov, Reducing the Dimensionality of Data with Neural Networks, 2006",
    ),
    Method(
        "dcn",
        "DCN",
        "dcn",
        "a k-means-friendly embedding: network and centres trained in alternation",
        "Yang et al., Towards K-means-friendly Spaces, ICML 2017",
    ),
    Method(
        "dec",
        "DEC",
        "dec",
        "soft assignments trained towards a sharper version of themselves",
        "Xie et al., Unsupervised Deep Embedding for Clustering Analysis, ICML 2016",
    ),
    Method(
        "idec",
        "IDEC",
        "dec",
        "DEC with a decoder",
        "Guo et al., Improved Deep Embedded Clustering with Local Structure Preservation, IJCAI 2017",
    ),
    Method(
        "vade",
        "VaDE",
        "vade",
        "a variational autoencoder with a Gaussian mixture as its prior",
        "Jiang et al., Variational Deep Embedding, IJCAI 2017",
    ),
    Method(
        "cross-metric",
        "CrossMetric",
        "cross_metric",
        "an embedding in which different distances give the same assignment",
        "Peng et al., Deep Clustering With Sample-Assignment Invariance Prior, TNNLS 2020",
    ),
    Method(
        "spectralnet",
        "SpectralNet",
        "spectralnet",
        "spectral clustering learnt by a network: clusters of any shape",
        "Shaham et al., SpectralNet: Spectral Clustering using Deep Neural Networks, ICLR 2018",
    ),
    Method(
        "iic",
        "IIC",
        "iic",
        "a classifier with the most mutual information between two versions of a sample",
        "Ji et al., Invariant Information Clustering for Unsupervised Image Classification, ICCV 2019",
    ),
    Method(
        "imsat",
        "IMSAT",
        "imsat",
        "confident, even clusters that do not change under small perturbations",
        "Hu et al., Learning Discrete Representations via Information Maximizing Self-Augmented Training, ICML 2017",
    ),
    Method(
        "sscnet",
        "SSCNet",
        "sscnet",
        "learnt sparse subspace clustering: for planes rather than balls",
        "SSCNet: learning-based subspace clustering",
    ),
)

# Transductive methods: they label only the rows they are fitted on.
TRANSDUCTIVE = (
    Method(
        "ssc",
        "SSC",
        "ssc",
        "each row as a sparse combination of others, then spectral clustering",
        "Elhamifar and Vidal, Sparse Subspace Clustering: Algorithm, Theory, and Applications, TPAMI 2013",
    ),
    Method(
        "dscnet",
        "DSCNet",
        "dscnet",
        "embeddings as combinations of one another, then spectral clustering",
        "Ji et al., Deep Subspace Clustering Networks, NeurIPS 2017",
    ),
)
