"""Settings of our own: is there one that does as well as TELL's in a tenth of the epochs?

TELL's five MNIST runs of 3,000 epochs have a mean ACC of 87.37; the settings below have 300 epochs in all, pretraining
included. Every setting is explicit, so that a change of the defaults does not change a recorded row.
"""

from typing import Any

from .spec import PaperTable, Row, Spec


def setting(**changes: Any) -> Spec:
    start = {
        "n_clusters": 10,
        "network": "conv",
        "pretrain_epochs": 20,
        "epochs": 280,
        "batch_size": 256,
        "augment": 0.5,
        "optimizer": "adam",
        "weight": 0.5,
        "center_step": 0.1,
        "center_decay": 0.0,
        "init": "k-means",
        "repair": True,
    }
    return Spec("mnist", "tell", changes={**start, **changes})


TABLES = (
    PaperTable(
        "beyond/mnist",
        "MNIST in 300 epochs: settings of ours beside TELL's 3,000",
        (
            Row("the defaults", setting(), rule="scatter"),
            Row("defaults, images unchanged", setting(augment=None), rule="scatter"),
            Row("defaults, longer pretraining", setting(pretrain_epochs=100, epochs=200), rule="scatter"),
            Row("defaults, λ = 0.1", setting(weight=0.1), rule="scatter"),
            Row("defaults, centres that settle", setting(center_decay=0.1), rule="scatter"),
            Row("defaults, batches of 1,024", setting(batch_size=1024, center_step=0.2), rule="scatter"),
            Row(
                "paper's λ and Adadelta after a k-means start",
                setting(optimizer="adadelta", weight=0.01, augment=None, pretrain_epochs=100, epochs=200),
                rule="loss",
            ),
            Row(
                "the paper, 300 epochs",
                Spec("mnist", "tell", "mnist", {"epochs": 300}),
                rule="loss",
            ),
        ),
        notes="The mean to beat is 87.37, of the paper's own five runs after 3,000 epochs (its kept run: 95.16). "
        "Labels score these settings and so choose among them: a winner needs fresh seeds before it is called one.",
    ),
)
