"""The tables of k-meansNet (Peng et al., 2018).

The paper does not say whether network and centres learn together, how long the autoencoder is trained (here 300
epochs), what the batch size is (here 256) or whose Adadelta it has (here Keras', which halves the reconstruction error
of 6,000 images in thirty epochs, where those of PyTorch only reach the mean image). Its loss has no lower bound: see
`methods/kmeansnet.py`. So there are several readings:

literal: two stages, weights and biases free, the paper's α, 3,000 epochs.
joint:   the same, but the network is trained together with the centres.
tied:    ours; two stages, weights and biases tied to the centres, α = 20, 300 epochs.

The paper's figures, which depend neither on the start nor on α, speak for a hard winner and joint training:
`FIVE_READINGS` are of that kind, in `kmeansnet/readings`.
"""

from dataclasses import replace
from typing import Any, NamedTuple

from .classical import classical_rows
from .spec import PaperTable, Row, Spec
from .tell import ALL_SCORES, CIFAR_IMAGES, NO_CIFAR100, ON_PART
from .tell import PRINTED_BASELINES as CLASSICAL

PAPER = "k-meansNet"
MNIST, CIFAR = "mnist-full", "cifar10-full"
VARIANT = "AE features (FC, 10-d)"
METRICS = {"ACC": "acc", "NMI": "nmi_geometric", "ARI": "ari"}  # the paper's NMI is the geometric one
ALPHAS = tuple(digit * 10.0**power for power in range(-5, 0) for digit in (1, 5))

TIED: dict[str, Any] = {"decoupled": False, "alpha": 20.0, "repair": True, "epochs": 300}
READINGS: dict[str, dict[str, Any]] = {"literal": {}, "tied": TIED}
PAPER_NETWORKS = {"dense": "mnist", "CNN": "mnist-cnn"}

HARD: dict[str, Any] = {
    "assignment": "hard",
    "decoupled": False,
    "center_update": "optimizer",
    "alternate": True,
    "joint": True,
    "summed": True,
    "weight": 1.0,
}
FIVE_READINGS: dict[str, dict[str, Any]] = {
    "i, hard, rescaled": HARD,
    "ii, hard, not rescaled": {**HARD, "center_update": "unnormalized"},
    "iii, hard, not in turns": {**HARD, "alternate": False},
    "v, hard, in the ball": {**HARD, "decoupled": True, "ball": True, "center_update": "unnormalized"},
    "iv, soft, any length": {
        **HARD,
        "assignment": "softmax",
        "sphere": False,
        "center_update": "unnormalized",
        "alternate": False,
    },
}
AS_PRINTED: dict[str, Any] = {"dropout_at": "outputs"}  # section 4.1: dropout after each encoder layer
AS_IN_TELL: dict[str, Any] = {"bottleneck": "linear", "noise": 0.0}
SHORTER: dict[str, Any] = {"pretrain_epochs": 100, "epochs": 100}  # of the readings that train a network


class Network(NamedTuple):
    """A network of the five readings: changes of the paper's settings, and an α for which α |h|² is about one.

    That is 0.01 for pixels, whose mean |x|² is 88, and 0.3 after a sigmoid, where |h|² is between 0 and 10.
    """

    paper: str
    printed: str
    changes: dict[str, Any]
    unit_length: bool = True  # of the images
    soft_alpha: float = 0.3


READING_NETWORKS = {
    "raw": Network("mnist", "raw", {"network": "identity"}, soft_alpha=0.01),
    "dense": Network("mnist", "FCN", {**AS_PRINTED, **SHORTER}),
    "CNN": Network("mnist-cnn", "CNN", SHORTER),
    "dense as in TELL": Network("mnist", "FCN", {**AS_IN_TELL, **SHORTER}, unit_length=False),
    "CNN as in TELL": Network("mnist-cnn", "CNN", {**AS_IN_TELL, **SHORTER}, unit_length=False),
}
OTHER_EPOCHS = 300  # epochs of readings other than the literal one: a tenth of the paper's
COLLAPSED = 100  # epochs of literal rows: with all 3,000, one cluster had every sample after fifty
PRINTED_FEATURES = {"raw": "raw", "dense": "FCN", "CNN": "CNN"}


def of_all(epochs: int) -> str:
    return f"{epochs} of 3,000 epochs" if epochs < 3000 else ""


def network(data: str, paper: str, **changes: Any) -> Spec:
    """The autoencoder alone."""
    return Spec(data, "kmeansnet", paper, {"epochs": 0, **changes}, unit_length=True)


AE = {name: network("mnist", paper) for name, paper in PAPER_NETWORKS.items()}
AE_CIFAR = replace(network("cifar10", "cifar10"), rows=CIFAR_IMAGES)


def centres(features: Spec | None, paper: str, data: str = "mnist", **changes: Any) -> Spec:
    """The cluster layer on features, or on the samples themselves."""
    return Spec(data, "kmeansnet", paper, {"network": "identity", **changes}, features, unit_length=features is None)


def kmeans(features: Spec | None, data: str = "mnist", **changes: Any) -> Spec:
    settings = {"n_clusters": 10, **changes}
    return Spec(data, "kmeans", changes=settings, features=features, unit_length=features is None)


LITERAL_CENTRES = {name: centres(AE[name], paper) for name, paper in PAPER_NETWORKS.items()}
TIED_CENTRES = {name: centres(AE[name], paper, **TIED) for name, paper in PAPER_NETWORKS.items()}


def beginning(features: str, sphere: bool = True) -> Spec:
    """The network and the k-means++ centres that readings with the same seed start from."""
    net = READING_NETWORKS[features]
    changes = {**net.changes, "decoupled": False, "sphere": sphere, "epochs": 0}
    return Spec("mnist", "kmeansnet", net.paper, changes, unit_length=net.unit_length, shared=True)


def reading(name: str, features: str) -> Spec:
    """One of the five readings, on raw pixels or with a network that is trained too."""
    net, soft = READING_NETWORKS[features], name.startswith("iv")
    changes = {**FIVE_READINGS[name], "epochs": OTHER_EPOCHS, **net.changes}
    if soft:
        changes["alpha"] = net.soft_alpha
    if features == "raw":
        return Spec("mnist", "kmeansnet", net.paper, changes, unit_length=not soft)
    changes["pretrain_epochs"] = 0
    begins = beginning(features, sphere=not soft)
    return Spec("mnist", "kmeansnet", net.paper, changes, unit_length=net.unit_length, begins=begins)


def superclasses(table: str, numbers: range) -> PaperTable:
    names = [f"s{number}" for number in numbers]
    ae = {s: network(f"cifar100-{s}", "cifar10", n_clusters=5) for s in names}
    methods = (
        ("k-meansNet, literal", "k-meansNet", lambda s: centres(ae[s], "cifar10", f"cifar100-{s}", n_clusters=5)),
        ("k-meansNet, tied", "k-meansNet", lambda s: centres(ae[s], "cifar10", f"cifar100-{s}", n_clusters=5, **TIED)),
        ("k-means, dense features", "k-means", lambda s: kmeans(ae[s], f"cifar100-{s}", n_clusters=5)),
    )
    return PaperTable(
        f"kmeansnet/table{table}",
        f"CIFAR-100, superclasses {names[0]} to {names[-1]}: ACC",
        tuple(
            Row(
                label,
                build(s),
                (f"cifar100-super-{s}", method, ""),
                "scatter" if method == "k-meansNet" else None,
                NO_CIFAR100,
            )
            for label, method, build in methods
            for s in names
        ),
        (PAPER, table),
        {"ACC": "acc"},
        layout="sets",
    )


def optimiser(printed: str, alpha: float, written: str, **changes: Any) -> Row:
    spec = centres(AE["CNN"], "mnist-cnn", alpha=alpha, **changes)
    published = (MNIST, "k-meansNet", f"CNN features; optimizer={printed}; alpha={written}")
    said = f", {COLLAPSED} epochs" if "epochs" in changes else ""
    return Row(f"{printed}, literal{said}", spec, published, "scatter", shorter=of_all(spec.settings["epochs"]))


def start(features: str, init: str) -> tuple[Row, ...]:
    """The rows of table 5 for one kind of features and one start."""
    ae, paper = AE.get(features), PAPER_NETWORKS.get(features, "mnist")
    where = f"init={init}; features={PRINTED_FEATURES[features]}"
    whole = ae is not None and init == "k-means++"  # with all 3,000 epochs, as in table 1 and figure 4
    literal = {} if whole else {"epochs": COLLAPSED}
    readings = {f"literal{'' if whole else f' ({COLLAPSED} epochs)'}": literal, "tied": TIED}
    rows = [
        Row(
            f"k-meansNet {name}, {features}, {init}",
            centres(ae, paper, init=init, **changes),
            (MNIST, "k-meansNet", where),
            "scatter",
            group=f"k-meansNet {name.split(' ')[0]}, {features}",
            shorter=of_all(changes.get("epochs", 3000)),
        )
        for name, changes in readings.items()
    ]
    if init != "k-means":
        rows.append(
            Row(
                f"k-means, {features}, {init}",
                kmeans(ae, init=init, n_init=1),
                (MNIST, "k-means", where),
                group=f"k-means, {features}",
            )
        )
    return tuple(rows)


TABLES = (
    PaperTable(
        "kmeansnet/table1",
        "Clustering MNIST and CIFAR-10",
        (
            Row("k-meansNet, literal", LITERAL_CENTRES["dense"], (MNIST, "k-meansNet", VARIANT), "scatter"),
            Row(
                f"k-meansNet, literal, joint, {OTHER_EPOCHS} epochs",
                Spec("mnist", "kmeansnet", "mnist", {"joint": True, "epochs": OTHER_EPOCHS}, unit_length=True),
                (MNIST, "k-meansNet", VARIANT),
                "scatter",
                shorter=of_all(OTHER_EPOCHS),
            ),
            Row(
                "k-meansNet, tied",
                TIED_CENTRES["dense"],
                (MNIST, "k-meansNet", VARIANT),
                "scatter",
                shorter=of_all(TIED["epochs"]),
            ),
            Row(
                "k-meansNet, tied, joint",
                Spec("mnist", "kmeansnet", "mnist", {**TIED, "joint": True}, unit_length=True),
                (MNIST, "k-meansNet", VARIANT),
                "scatter",
                shorter=of_all(TIED["epochs"]),
            ),
            Row("k-means, dense features", kmeans(AE["dense"]), (MNIST, "k-means", VARIANT)),
            *classical_rows("mnist", (MNIST, VARIANT), ("FCM", *CLASSICAL), 70_000, features=AE["dense"]),
            Row(
                f"k-meansNet, literal{ON_PART}, {COLLAPSED} epochs",
                centres(AE_CIFAR, "cifar10", "cifar10", epochs=COLLAPSED),
                (CIFAR, "k-meansNet", VARIANT),
                "scatter",
                part="a third of the images",
            ),
            Row(
                f"k-meansNet, tied{ON_PART}",
                centres(AE_CIFAR, "cifar10", "cifar10", **TIED),
                (CIFAR, "k-meansNet", VARIANT),
                "scatter",
                part="a third of the images",
            ),
            Row(f"k-means, dense features{ON_PART}", kmeans(AE_CIFAR, "cifar10"), (CIFAR, "k-means", VARIANT)),
            *classical_rows(
                "cifar10", (CIFAR, VARIANT), ("FCM", *CLASSICAL), CIFAR_IMAGES, features=AE_CIFAR, said=ON_PART
            ),
        ),
        (PAPER, "1"),
        METRICS,
        notes="The paper prints its best tuned result. NMI is the geometric one, as in the paper. Several lines were "
        "carried over from earlier papers with other inputs. Of CIFAR-10 20,000 images, where the paper has 60,000. "
        "LRR on MNIST and ZAC on CIFAR-10 (below the smallest possible accuracy) cannot be right.",
    ),
    superclasses("2", range(1, 11)),
    superclasses("3", range(11, 21)),
    PaperTable(
        "kmeansnet/table4",
        "MNIST: four optimisers, convolutional features",
        (
            optimiser("AdaDelta", 1e-2, "1e-2"),
            optimiser("Adagrad", 1e-3, "1e-3", optimizer="adagrad", epochs=COLLAPSED),
            optimiser("Adam", 1e-2, "1e-2", optimizer="adam", epochs=COLLAPSED),
            optimiser("RMSprop", 1e-3, "1e-3", optimizer="rmsprop", epochs=COLLAPSED),
        ),
        (PAPER, "4"),
        {**ALL_SCORES, "NMI": "nmi_geometric"},
        notes="The optimiser is that of the cluster layer; the network is trained by Adadelta in every row. Learning "
        "rates, which the paper does not give, are PyTorch's usual ones; Adadelta is Keras'. Rows of 100 epochs have a "
        "thirtieth of the paper's: with Adadelta, in all of them, one cluster has every sample by the fiftieth epoch.",
    ),
    PaperTable(
        "kmeansnet/table5",
        "MNIST: three starts on raw, dense and convolutional features",
        tuple(
            row
            for features in ("raw", "dense", "CNN")
            for init in ("random", "k-means++", "k-means")
            for row in start(features, init)
        ),
        (PAPER, "5"),
        METRICS,
        notes="The paper claims that the result hardly depends on the start: see the spread over starts. A random "
        "start is random samples in the literal reading, and random directions in the tied one (on the sphere).",
    ),
    PaperTable(
        "kmeansnet/readings",
        "MNIST: five readings of the paper with a hard winner or joint training",
        (
            *(
                Row(
                    f"k-meansNet {name}, {features}",
                    reading(name, features),
                    (MNIST, "k-meansNet", f"init=k-means++; features={net.printed}"),
                    "scatter",
                    shorter=of_all(net.changes.get("epochs", OTHER_EPOCHS)),
                )
                for features, net in READING_NETWORKS.items()
                for name in FIVE_READINGS
            ),
            *(
                Row(
                    f"k-means, {features}",
                    kmeans(beginning(features)),
                    (MNIST, "k-means", f"init=k-means++; features={net.printed}"),
                )
                for features, net in READING_NETWORKS.items()
                if features != "raw"
            ),
        ),
        (PAPER, "5"),
        METRICS,
        notes="i: a = argmax W·h, |W_j| = 2α after each step, b = -α, the gradient of W_j of length 0.2 α, network and "
        "centres in turns, on |x - g(h)|² + |h - Ω_a|². ii: the gradient as it is. iii: network and centres at once. "
        "iv: softmax, rows of any length, α |h|² about one, b tied to W. v: |W_j| <= 2α, -α <= b_j <= 0, both free. "
        "As in TELL: linear bottleneck, pixels in [0, 1], no noise, dropout before each layer, not after. 300 epochs "
        "on raw pixels; with a network 100 after 100 of pretraining, where the paper has 3,000.",
        whole=False,
    ),
    PaperTable(
        "kmeansnet/figure4",
        "MNIST: convergence",
        tuple(
            Row(
                f"k-meansNet {name}, {features}",
                specs[features],
                (MNIST, "k-meansNet", where) if name == "literal" else None,
                "scatter",
            )
            for features, where in (("dense", "FCN; epochs>1650"), ("CNN", "CNN; epochs>1550"))
            for name, specs in (("literal", LITERAL_CENTRES), ("tied", TIED_CENTRES))
        ),
        (PAPER, "text"),
        METRICS,
        figure="curves",
        notes="The paper gives the range its accuracy stays in late in training.",
        whole=False,
    ),
    PaperTable(
        "kmeansnet/figure5",
        "MNIST: α from 1e-5 to 0.5, dense features",
        tuple(
            Row(
                f"{name}, α = {alpha:g}",
                centres(AE["dense"], "mnist", **{"epochs": 300, **changes, "alpha": alpha}),
                (MNIST, "k-meansNet", "alpha swept 1e-5..0.5 (FCN)"),
                "scatter",
                group=name,
                x=alpha,
            )
            for name, changes in READINGS.items()
            for alpha in ALPHAS
        ),
        (PAPER, "text"),
        METRICS,
        figure="sweep",
        axis="α",
        notes="300 epochs for every α. The paper gives an approximate level for all of them. In the tied reading none "
        "of these α keeps the clusters apart: they begin to dissolve in the first epoch, and what is scored is the "
        "k-means++ start, to which it goes back.",
        whole=False,
    ),
)
