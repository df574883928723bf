import pytest

from diffclust.reproduce.record import EARLIER, FIELDS, Records

from .conftest import outcome, spec


def test_runs_come_back_as_they_went(records):
    a, b = spec(), spec(epochs=7)
    first = outcome(a, 1, 80.12345, clustering_loss=0.0181234567891, scatter=0.25)
    first.curve = [{"epoch": 2, "acc": 50.0, "nmi": 40.0, "ari": 30.0, "clustering": 0.5}, {"epoch": 4, "acc": 60.0}]
    records.add("one", [first, outcome(a, 0, 70)])
    records.add("two", [outcome(b, 0, 60)])
    again = Records(records.folder)
    assert [o.seed for o in again.of(a)] == [0, 1]
    found = again.of(a)[1]
    assert found.figures["acc"] == pytest.approx(80.1235)
    assert found.figures["clustering_loss"] == 0.0181234567891
    assert "reconstruction" not in found.figures
    assert found.curve == first.curve
    assert [o.figures["acc"] for o in again.of(b)] == [60]  # found whichever table it was made for
    assert again.of(spec(epochs=8)) == []


def test_a_run_recorded_twice_counts_once(records):
    run = outcome(spec(), 0, 70)
    run.curve = [{"epoch": 2, "acc": 50.0}]
    records.add("one", [run])
    records.add("one", [run])
    (again,) = Records(records.folder).of(spec())
    assert again.curve == run.curve


@pytest.mark.parametrize("columns", EARLIER, ids=len)
def test_files_of_earlier_versions_are_read_and_gone_on_with(records, columns):
    late = set(FIELDS) - set(columns)
    assert late in ({"acc_validation"}, {"acc_validation", "pair_precision"})
    records.folder.mkdir()
    file = records.folder / "one.csv"
    file.write_text(",".join(columns) + "\n")
    run = outcome(spec(), 0, 70, acc_validation=50.0, pair_precision=60.0)
    records.add("one", [run])
    assert file.read_text().splitlines()[0] == ",".join(columns)
    (again,) = Records(records.folder).of(spec())
    assert again.figures["acc"] == 70
    assert not late & set(again.figures)
    records.add("two", [run])
    assert Records(records.folder).of(spec())[0].figures == run.figures


def test_files_of_other_benchmarks_are_left_alone(records):
    records.folder.mkdir()
    other = records.folder / "other.csv"
    other.write_text("data,method\na,b\n")
    assert Records(records.folder).outcomes == []
    with pytest.raises(ValueError, match="other columns"):
        records.add("other", [outcome(spec(), 0, 70)])
    assert other.read_text() == "data,method\na,b\n"


def test_a_cut_off_line_is_an_error_with_its_place(records):
    records.add("one", [outcome(spec(), seed, 70) for seed in range(2)])
    file = records.folder / "one.csv"
    file.write_text(file.read_text()[:-20])
    with pytest.raises(ValueError, match=r"one\.csv, line 3, is not a run: it does not have \d+ columns"):
        Records(records.folder)


def test_no_folder_is_no_runs(tmp_path):
    assert Records(tmp_path / "nowhere").outcomes == []
