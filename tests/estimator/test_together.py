"""Several estimators fitted at once give what each gives alone."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import diffclust
from diffclust import DEC, SSC, TELL, KMeansNet, VaDE, callbacks, fit_together
from diffclust.callbacks import StopWhenLabelsSettle, TrainingRecord
from diffclust.estimator import together

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SHORT = {"pretrain_epochs": 2, "epochs": 4, "device": "cpu"}
DENSE = {**SHORT, "network": "dense"}  # of images, to be quick


def same(ours, alone):
    assert type(ours) is type(alone)
    assert len(ours.runs_) == len(alone.runs_)
    for one, other in zip(ours.runs_, alone.runs_, strict=True):
        assert one["history"] == other["history"]
        assert (one["labels"] == other["labels"]).all()
    assert (ours.labels_ == alone.labels_).all()
    assert (ours.cluster_centers_ == alone.cluster_centers_).all()


def different():
    """Other methods, settings, lengths, batches, restarts and networks."""
    return [
        TELL(4, random_state=0, **SHORT),
        TELL(4, weight=0.5, n_init=2, random_state=1, **DENSE),
        DEC(3, random_state=0, **{**DENSE, "epochs": 6}),
        VaDE(4, random_state=0, batch_size=32, **DENSE),
        KMeansNet(4, network="identity", random_state=0, **SHORT),
    ]


def test_each_is_what_it_is_alone(digits, beside, at_once):
    alone = [estimator.fit(digits[0][:80]) for estimator in different()]
    del at_once[:]
    ours = different()
    found = fit_together(ours, digits[0][:80])
    assert at_once == ([6] if beside else [1] * 6)
    assert all(one is other for one, other in zip(found, ours, strict=True))
    for one, other in zip(ours, alone, strict=True):
        same(one, other)
        assert (one.predict(digits[0][:20]) == other.predict(digits[0][:20])).all()


def test_more_than_the_device_takes_come_in_groups(blobs, beside, at_once, monkeypatch):
    monkeypatch.setattr(callbacks, "MAX_RUNS_AT_ONCE", 2)
    ours = fit_together([TELL(3, random_state=seed, n_init=1 + seed, **SHORT) for seed in range(2)], blobs[0])
    assert at_once == ([2, 1] if beside else [1] * 3)
    for seed, model in enumerate(ours):
        same(model, TELL(3, random_state=seed, n_init=1 + seed, **SHORT).fit(blobs[0]))


def test_each_has_its_own_rule_to_stop_by(digits, beside):
    def build():
        rules = [StopWhenLabelsSettle(tolerance, every=1) for tolerance in (0.0, 0.05, 1.0)]
        return [TELL(4, random_state=0, callbacks=[rule], **{**DENSE, "epochs": 12}) for rule in rules]

    ours = fit_together(build(), digits[0][:80])
    assert ours[2].n_iter_ < 12
    for one, other in zip(ours, build(), strict=True):
        same(one, other.fit(digits[0][:80]))


class Forgetful:
    """It has a memory, and no way to keep the runs apart."""

    def __init__(self):
        self.epochs = []

    def __call__(self, progress):
        self.epochs.append(progress.epoch)


def test_who_could_mistake_one_run_for_another_sees_one_at_a_time(blobs, beside, at_once):
    watcher = Forgetful()
    estimators = [TELL(3, random_state=seed, **SHORT) for seed in range(2)]
    watched = TELL(3, random_state=2, n_init=2, callbacks=[watcher], **SHORT)
    fit_together([*estimators, watched], blobs[0])
    assert at_once == ([2, 1, 1] if beside else [1] * 4)
    assert watcher.epochs == watcher.epochs[: len(watcher.epochs) // 2] * 2


def test_each_has_a_record_of_its_own(digits, beside, at_once):
    records = [TrainingRecord(frames=3) for _ in range(2)]
    ours = [TELL(4, random_state=seed, callbacks=[records[seed]], **DENSE) for seed in range(2)]
    fit_together(ours, digits[0][:80])
    assert at_once == ([2] if beside else [1] * 2)
    for record, model in zip(records, ours, strict=True):
        assert np.allclose(record.of(model)[-1]["centers"], model.cluster_centers_, atol=1e-6)
    for model in ours:
        model.set_params(callbacks=records[:1])
    with pytest.raises(ValueError, match="TrainingRecord watches one fit"):
        fit_together(ours, digits[0][:80])


def test_the_samples_are_read_once(blobs, monkeypatch):
    reads = []
    read_rows = together.read_rows
    monkeypatch.setattr(together, "read_rows", lambda *a, **k: reads.append(1) or read_rows(*a, **k))
    fit_together([TELL(3, random_state=seed, **SHORT) for seed in range(3)], blobs[0])
    assert len(reads) == 1


def test_a_wrong_setting_shows_before_anything_is_trained(blobs, at_once):
    estimators = [TELL(3, **SHORT), TELL(3, epochs=-1)]
    with pytest.raises(ValueError, match="epochs=-1"):
        fit_together(estimators, blobs[0])
    assert at_once == []
    assert not hasattr(estimators[0], "labels_")
    for wrong in ({"checkpoint": 5}, {"callbacks": 5}, {"deterministic": np.eye(2)}):
        with pytest.raises((TypeError, ValueError), match=f"{next(iter(wrong))}="):
            fit_together([TELL(3, **SHORT), TELL(3, **wrong)], blobs[0])
    with pytest.raises(ValueError, match="n_samples=2"):
        fit_together([TELL(3, **SHORT)], blobs[0][:2])


def test_any_iterable_of_estimators_will_do(blobs):
    models = fit_together((TELL(3, random_state=seed, **SHORT) for seed in range(2)), blobs[0])
    assert [len(model.labels_) for model in models] == [len(blobs[0])] * 2


@pytest.mark.parametrize("wrong", [TELL(3), [TELL], ["tell"], np.zeros((3, 2))])
def test_what_is_no_list_of_estimators_is_refused(wrong, blobs):
    with pytest.raises(TypeError, match="a list of estimators"):
        fit_together(wrong, blobs[0])


def test_what_cannot_be_kept_apart_is_refused(blobs, tmp_path):
    estimator = TELL(3, **SHORT)
    with pytest.raises(ValueError, match="twice"):
        fit_together([estimator, estimator], blobs[0])
    folder = tmp_path / "ck"
    with pytest.raises(ValueError, match="folder each"):
        fit_together([TELL(3, checkpoint=folder, **SHORT), TELL(3, checkpoint=str(folder), **SHORT)], blobs[0])


def test_one_without_training_goes_along(blobs):
    tell, ssc = fit_together([TELL(3, random_state=0, **SHORT), SSC(3, random_state=0)], blobs[0])
    assert len(ssc.labels_) == len(tell.labels_) == len(blobs[0])
    assert fit_together([], blobs[0]) == []


def test_all_go_on_after_a_stop(digits, beside, tmp_path):
    class Stop(Exception):
        pass

    def stopping(progress):
        if progress.epoch == 2 and progress.phase == "clustering":
            raise Stop

    def build(*watching):
        return [
            TELL(
                4,
                random_state=seed,
                checkpoint=tmp_path / f"{seed}",
                checkpoint_every=1,
                callbacks=list(watching),
                **DENSE,
            )
            for seed in range(2)
        ]

    with pytest.raises(Stop):
        fit_together(build(stopping), digits[0][:80])
    assert any((tmp_path / "0").iterdir())
    for seed, model in enumerate(fit_together(build(), digits[0][:80])):
        same(model, TELL(4, random_state=seed, **DENSE).fit(digits[0][:80]))


def test_ctrl_c_keeps_what_was_begun(digits, beside):
    def ctrl_c(progress):
        if progress.epoch == 1 and progress.phase == "clustering":
            raise KeyboardInterrupt

    first, second = TELL(4, random_state=0, callbacks=[ctrl_c], **SHORT), TELL(4, random_state=1, **SHORT)
    if beside:
        fit_together([first, second], digits[0][:80])
        assert "interrupted" in [kind for kind, _ in second.diagnostics_["events"]]
    else:
        with pytest.raises(KeyboardInterrupt):
            fit_together([first, second], digits[0][:80])
        assert not hasattr(second, "labels_")
    assert "interrupted" in [kind for kind, _ in first.diagnostics_["events"]]
    assert len(first.labels_) == len(digits[0][:80])


def test_ctrl_c_leaves_the_checkpoints_of_those_that_were_not_begun(blobs, tmp_path):
    class Stop(Exception):
        pass

    def stopping(progress):
        if progress.phase == "clustering":
            raise Stop

    def ctrl_c(progress):
        raise KeyboardInterrupt

    def waiting(*watching):
        settings = {"checkpoint": tmp_path, "checkpoint_every": 1, "random_state": 1, "callbacks": list(watching)}
        return TELL(3, **settings, **SHORT)

    with pytest.raises(Stop):
        waiting(stopping).fit(blobs[0])
    kept = sorted(tmp_path.iterdir())
    assert kept
    with pytest.raises(KeyboardInterrupt):
        fit_together([TELL(3, random_state=0, callbacks=[ctrl_c], **SHORT), waiting()], blobs[0])
    assert sorted(tmp_path.iterdir()) == kept
    same(waiting().fit(blobs[0]), TELL(3, random_state=1, **SHORT).fit(blobs[0]))


@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
def test_warnings_point_to_the_caller():
    rows = np.ones((40, 3), np.float32)
    with pytest.warns(ConvergenceWarning) as caught:
        fit_together([TELL(3, random_state=0, **SHORT)], rows)
    assert {warning.filename for warning in caught} == {__file__}


def test_it_is_public():
    assert "fit_together" in diffclust.__all__
    assert diffclust.fit_together is together.fit_together
