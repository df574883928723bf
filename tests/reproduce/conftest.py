import pytest

from diffclust.reproduce.record import Outcome, Records
from diffclust.reproduce.run import Runner
from diffclust.reproduce.spec import PaperTable, Row, Spec

PLAIN = {"network": "identity", "epochs": 6, "n_clusters": 10}
PLACE = dict.fromkeys(("epochs", "device", "threads", "precision", "diffclust", "torch", "scikit-learn"), "")


def spec(**changes) -> Spec:
    """TELL on a few digits, without a network: quick."""
    return Spec("digits", "tell", changes={**PLAIN, **changes}, rows=120)


def table(*rows: Row, **changes) -> PaperTable:
    return PaperTable("some/table", "A table", rows, **changes)


def outcome(of: Spec, seed: int, acc: float, **figures: float) -> Outcome:
    """A run with a given accuracy; NMI and ARI are 10 and 20 lower."""
    scores = {"acc": acc, "nmi": acc - 10, "nmi_geometric": acc - 9, "ari": acc - 20}
    return Outcome(of.data, of.method, of.text, seed, 0, {**scores, **figures}, {**PLACE, "seconds": "1.0"})


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "results")


@pytest.fixture
def runner(records, tmp_path):
    def build(**options):
        return Runner(records, tmp_path / "checkpoint", "cpu", **{"say": lambda line: None, **options})

    return build
