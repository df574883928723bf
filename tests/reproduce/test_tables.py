"""The tables as data: every row can be run, and stands beside the figure it claims."""

import re
from functools import partial

import pytest
import torch

from diffclust.reproduce.cross_metric import VARIANTS
from diffclust.reproduce.published import published
from diffclust.reproduce.spec import QUICK_EPOCHS, QUICK_ROWS, Spec
from diffclust.reproduce.tables import TABLES, find

each_table = pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)


def test_published_figures_are_those_of_the_papers():
    """Picked by hand from the papers."""
    lines = {line.name: line.figures for line in published("TELL", "1")}
    assert lines["mnist-full", "TELL", ""] == {"ACC": "95.16", "NMI": "88.83", "ARI": "89.66"}
    assert lines["cifar10-full", "VaDE", ""]["ACC"] == "20.87"
    runs = published("TELL", "S1")
    assert [line.figures["ACC"] for line in runs] == ["95.16", "95.10", "82.88", "82.04", "81.69"]
    four = {line.variant: line.figures for line in published("k-meansNet", "4")}
    assert four["CNN features; optimizer=Adagrad; alpha=1e-3"]["homogeneity"] == "65.04"
    assert len({line.dataset for line in published("TELL", "3")} - {"cifar100-super-s11..s20"}) == 10


@each_table
def test_every_row_is_run_or_says_why_not_and_finds_its_figure(table):
    figures = {line.name for line in published(*table.source)} if table.source else set()
    for row in table.rows:
        assert row.spec is not None or row.reason.startswith("not run here")
        if row.published is not None and table.layout != "runs":
            assert row.published in figures


@each_table
def test_settings_are_ones_the_estimator_takes(table):
    for spec in (row.spec for row in table.rows):
        while spec is not None:
            if spec.is_ours:
                spec.estimator()(**spec.settings)._check_settings()
            else:
                assert spec.settings["n_clusters"] in (4, 5, 8, 10, 20)
            spec = spec.features or spec.begins


def test_the_papers_rows_have_the_papers_settings():
    row = find("tell/table1").rows[0]
    assert (row.spec.settings["epochs"], row.spec.settings["weight"], row.spec.settings["init"]) == (
        3000,
        0.01,
        "random",
    )
    assert not {"n_init", "select"} & set(row.spec.settings)
    assert find("tell/tableS1").rows[0].spec.key == row.spec.key  # one run serves both tables
    sweep = find("kmeansnet/figure5").rows
    assert sorted({row.x for row in sweep}) == pytest.approx([m * 10**p for p in range(-5, 0) for m in (1, 5)])
    assert all(row.spec.settings["alpha"] == row.x for row in sweep)
    assert [row.spec.data for row in find("tell/table3").rows[:10]] == [f"cifar100-s{s}" for s in range(11, 21)]


def test_the_rows_of_cross_metric():
    lines = {line.name: line.figures for line in published("SAIP", "III")}
    assert lines["mnist-full", "HOE (CNN)", ""] == {
        "ACC": "93.25",
        "NMI": "86.39",
        "ARI": "82.14",
        "Precision": "83.59",
    }
    three = {(row.spec.data, row.label): row.spec for row in find("cross-metric/table3").rows if row.spec}
    assert three["mnist", "HOT"].settings["metric"] == "correlation"
    assert three["mnist", "HOE, CNN"].settings["network"] == "conv-pool"
    assert three["mnist-test", "HIT"].settings["epochs"] == 300
    six = {row.label: row.spec for row in find("cross-metric/table6").rows}
    assert six["HOE, P1"].key == three["mnist", "HOE"].key  # one run serves both tables
    assert six["HOE, P2"].settings == {**six["HOE, P1"].settings, "inference": "target"}
    assert six["HOE, P2"].reads == six["HOE, P1"]
    begins = {spec.begins.key for (data, label), spec in three.items() if data == "mnist" and label in VARIANTS}
    assert begins == {three["mnist", "k-means on the pretrained network"].features.key}


def test_the_rows_of_sscnet():
    lines = {line.name: line.figures for line in published("SSCNet", "1")}
    assert lines["usps", "SSCNet", ""] == {"NMI": "94.82", "ACC": "98.90"}
    rows = {(row.spec.data, row.label): row.spec for row in find("sscnet/table1").rows if row.spec}
    letter = rows["mnist", "SSCNet, to the letter"].settings
    assert (letter["pipeline"], letter["n_blocks"], letter["cap"], letter["augment"]) == ("paper", 4, 0.01, None)
    assert rows["coil20", "SSCNet, ours, jitter"].settings["n_clusters"] == 20
    three = find("sscnet/figure3").rows
    assert [row.spec.settings["n_blocks"] for row in three] == [row.x for row in three] == [0, 1, 2, 3, 4]


def test_a_run_is_known_by_all_that_makes_it_what_it_is():
    plain = Spec("mnist", "tell", "mnist")
    assert plain.key == Spec("mnist", "tell", "mnist", {"epochs": 3000, "n_init": 1}).key
    others = [
        Spec("usps", "tell", "mnist"),
        Spec("mnist", "tell", "mnist", {"epochs": 3001}),
        Spec("mnist", "tell", "mnist", unit_length=True),
        Spec("mnist", "tell", "mnist", rows=100),
        Spec("mnist", "tell", "mnist", features=Spec("mnist", "tell", "mnist", {"epochs": 0})),
        Spec("mnist", "tell", "mnist", features=Spec("mnist", "tell", "mnist", {"epochs": 1})),
        Spec("mnist", "tell", "mnist", begins=Spec("mnist", "tell", "mnist", {"epochs": 0})),
        Spec("mnist", "tell", "mnist", begins=Spec("mnist", "tell", "mnist", {"epochs": 1})),
        Spec("mnist", "tell", "mnist", validation=0.1),
        Spec("mnist", "tell", "mnist").with_weight(0.5),
    ]
    assert len({spec.key for spec in (plain, *others)}) == 11
    assert Spec("mnist", "tell", "mnist", shared=True).key == plain.key  # where it is kept makes no other run of it


def test_settings_that_are_code_have_a_text_that_stays():
    optimizer = partial(torch.optim.Adam, lr=0.002, eps=1e-4)
    text = Spec("mnist", "vade", changes={"optimizer": optimizer}).text
    assert text == '{"optimizer": "Adam(eps=0.0001, lr=0.002)"}'
    with pytest.raises(TypeError, match="cannot be a setting of a row"):
        Spec("mnist", "vade", changes={"optimizer": lambda parameters: None}).text  # noqa: B018


def test_quick_is_small():
    for table in TABLES.values():
        for row in table.quick().rows:
            for spec in (row.spec, row.spec.features, row.spec.begins) if row.spec else ():
                if spec is not None and spec.is_ours:
                    assert spec.rows == QUICK_ROWS
                    assert max(spec.settings["epochs"], spec.settings["pretrain_epochs"]) <= QUICK_EPOCHS


def test_a_part_of_a_table():
    part = find("tell/table1").only(["cifar10", "gmm"])
    assert [(row.label, row.spec.data) for row in part.rows] == [
        ("GMM, CNN features", "mnist"),
        ("TELL, CNN, 20,000 images, 500 epochs", "cifar10"),
        *((f"{name}, CNN features, 20,000 images", "cifar10") for name in ("k-means", "GMM", "FCM")),
        *((f"{name}, features, 20,000 images", "cifar10") for name in ("SC", "SLRR", "LSC-R", "LSC-K")),
    ]
    assert [row.spec.data for row in find("tell/table1").only(["mnist: TELL, CNN"]).rows] == ["mnist"]
    assert [row.label for row in find("cross-metric/table3").only(["mnist: hoe"]).rows] == ["HOE"]
    kept = [row.label for row in find("cross-metric/table3").only(["mnist: ho"]).rows]
    assert kept == [
        "HOMO",
        "HOE",
        "HOT",
        "HOMO, guarded",
        "HOE, guarded",
        "HOT, guarded",
        "HOMO, slow",
        "HOE, slow",
        "HOT, slow",
        "HOE, CNN",
        "HOE, matched, CNN",
    ]
    with pytest.raises(ValueError, match=r"No row of tell/table1 has 'xyz' in it. There are: mnist: TELL, CNN; "):
        find("tell/table1").only(["xyz"])


def test_an_unknown_table():
    with pytest.raises(ValueError, match="No table is called 'tell/tabel1': did you mean 'tell/table1'"):
        find("tell/tabel1")
    with pytest.raises(ValueError, match="there are tell/table1, "):
        find("zzz")


def test_classical_rows_fit_or_say_what_they_would_need():
    rows = {(row.published[0], row.label): row for row in find("cross-metric/table3").rows if row.published}
    assert rows["mnist-full", "LRR, pixels"].reason.endswith(
        "each 39 GB for 70,000 rows; above 10,000 rows it was not tried"
    )
    assert rows["mnist-test", "LRR, pixels"].spec.method == "lrr"
    assert (rows["mnist-test", "ZAC, pixels"].seeds, rows["mnist-test", "LSC-K, pixels"].seeds) == (1, 3)
    own = [row for row in find("kmeansnet/table1").rows if row.label == "NMF, features"]
    assert own[0].spec.features.key == find("kmeansnet/table1").rows[4].spec.features.key  # one embedding for all
    signed = [row for row in find("tell/table1").rows if row.label == "NMF, features"]
    assert all("negative" in row.reason for row in signed)


def test_rows_with_fewer_epochs_say_so():
    """A row's epochs and its paper's are those of the settings; published lines of a whole run have all of them."""
    said = 0
    for table in TABLES.values():
        for row in table.rows:
            found = re.fullmatch(r"(?:at most )?(\d+) of ([\d,]+) epochs", row.shorter)
            if found and row.spec.paper:
                epochs, of_all = (int(number.replace(",", "")) for number in found.groups())
                assert (row.spec.settings["epochs"], row.spec.estimator().papers[row.spec.paper]["epochs"]) == (
                    epochs,
                    of_all,
                )
                said += 1
            if row.spec and row.spec.method == "cross-metric" and row.published and not row.shorter:
                assert row.spec.settings["epochs"] == row.spec.estimator().papers[row.spec.paper]["epochs"]
    assert said > 60


def test_networks_of_ours_are_named():
    rows = [row for row in TABLES["sscnet/table1"].rows if row.spec and row.spec.method == "sscnet"]
    assert all(bool(row.other) == row.label.startswith("SSCNet, ours") for row in rows)
    assert all(bool(row.part) == (row.spec.data == "cifar10") for row in rows)
