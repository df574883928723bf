"""A setting's default and limits stand with its field; one check reads them."""

import functools
import math

import numpy as np
import pytest
import torch

from diffclust import DCN, SSC, TELL, AEKMeans, CrossMetric, DeepKMeans, SSCNet
from diffclust.baselines import FuzzyCMeans
from diffclust.estimator.knobs import check_knobs, knob, rules_of
from diffclust.estimator.settings import hyperparameters

NUMBERS = (float("nan"), math.inf, -math.inf)


def test_the_defaults_are_allowed(method):
    method()._check_settings()


@pytest.mark.parametrize("value", ["False", "yes", 0, 1, 1.0, None])
def test_flags_are_true_or_false(method, value):
    flags = [rule.name for rule in rules_of(method) if rule.kinds == {bool}]
    for name in flags:
        with pytest.raises(ValueError, match=f"{name}={value!r} should be one of .*True, False"):
            method(**{name: value})._check_settings()
        method(**{name: np.False_})._check_settings()


def test_numbers_are_finite_and_no_flags(method):
    for rule in rules_of(method):
        if {int, float} & rule.kinds and bool not in rule.kinds and not rule.is_open:
            for value in (*NUMBERS, True):
                with pytest.raises((TypeError, ValueError), match=f"{rule.name}="):
                    method(**{rule.name: value})._check_settings()


@pytest.mark.parametrize(
    ("estimator", "says"),
    [
        (TELL(0), "n_clusters=0 should be >= 1."),
        (TELL(2.5), "n_clusters=2.5 should be 'auto' or an integer >= 1."),
        (TELL(batch_size="big"), "batch_size='big' should be 'auto' or an integer >= 2."),
        (TELL(lr=math.inf), "lr=inf should be None or a finite number > 0."),
        (TELL(lr=True), "lr=True should be None or a finite number > 0."),
        (TELL(augment=-1), "augment=-1 should be 'auto', 'photos', None, a callable or a finite number >= 0."),
        (TELL(center_step=2), "center_step=2 should be a number from 0 to 1."),
        (TELL(center_update="no"), "center_update='no' should be one of 'normalized', 'optimizer', 'unnormalized'."),
        (TELL(sphere=1), "sphere=1 should be one of 'auto', True, False."),
        (TELL(verbose="yes"), "verbose='yes' should be True, False or an integer."),
        (CrossMetric(decay=0), "decay=0 should be a number > 0 and <= 1."),
        (CrossMetric(optimizer=3), "optimizer=3 should be 'adadelta', .*, 'sgd' or a callable."),
        (DeepKMeans(distance="far"), "distance='far' should be 'euclidean', 'cosine' or a callable."),
        (DCN(first_count=1e308), r"first_count=1e\+308 is too large for float32: 3.4e\+38 at most."),
        (TELL(10**400), "n_clusters=1000.* is too large for float32: .*"),
        (DCN(first_count=0.5), "first_count=0.5 should be a finite number >= 1."),
        (SSCNet(n_atoms=2.5), "n_atoms=2.5 should be an integer >= 1."),
        (SSC(alpha=1), "alpha=1 should be a finite number > 1."),
        (SSC(random_state=1.5), "random_state=1.5 should be None, an integer from 0 to 4294967295 or a .*RandomState."),
        (TELL(random_state=-1), "random_state=-1 should be None, an integer from 0 .*"),
        (TELL(device=3), "device=3 should be a name: .*"),
        (TELL(precision=np.ones(2)), "precision=array.* should be one of auto, float32, bf16."),
        (TELL(checkpoint=5), "checkpoint=5 should be a folder, or None."),
        (TELL(callbacks="x"), "callbacks='x' should be a list .*"),
        (FuzzyCMeans(tol="x"), "tol='x' should be a finite number >= 0."),
        (FuzzyCMeans(m=1), "m=1 should be a finite number > 1."),
    ],
)
def test_the_message_has_the_value_and_what_is_allowed(estimator, says):
    with pytest.raises((TypeError, ValueError), match=f"^{says}$"):
        check_knobs(estimator)


def test_what_is_allowed():
    TELL(
        np.int64(3), lr=np.float32(0.1), weight=2, augment=lambda x: x, optimizer=torch.optim.Adam, verbose=2, epochs=0
    )._check_settings()
    TELL(optimizer=functools.partial(torch.optim.SGD, momentum=0.9), augment=None, device="cpu")._check_settings()


def test_another_default_keeps_the_limits():
    @hyperparameters
    class Mine(AEKMeans):
        layer_epochs: int = 3
        extra: float = knob(1.0, above=0, high=2)

    Mine()._check_settings()
    for name, value in (("layer_epochs", -1), ("extra", 0), ("extra", 2.5)):
        with pytest.raises(ValueError, match=f"{name}={value}"):
            Mine(**{name: value})._check_settings()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"init": object()}, "init=.* should be one of k-means, .*, or an array"),
        ({"optimizer": lambda parameters: 5}, "optimizer=.* makes a int, which is not a torch optimiser"),
        ({"optimizer": len, "lr": 1.0}, "optimizer=.* makes a int"),
        ({"optimizer": int}, "optimizer=.* cannot be made"),
        ({"deterministic": np.eye(2)}, r"deterministic=array(.|\n)* should be one of True, False"),
    ],
)
def test_what_shows_when_it_is_used_is_named(blobs, settings, says):
    with pytest.raises((TypeError, ValueError), match=says):
        TELL(3, network="dense", pretrain_epochs=1, epochs=1, device="cpu", **settings).fit(blobs[0])


def test_a_checkpoint_that_cannot_be_is_named(blobs, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="checkpoint"):
        TELL(3, checkpoint=tmp_path / "file" / "inside", device="cpu").fit(blobs[0])


@pytest.mark.parametrize("augment", [len, lambda x: x[:, :1], lambda x: x.long(), int])
def test_an_augmentation_that_does_not_fit_is_named(blobs, augment):
    with pytest.raises(ValueError, match="augment="):
        TELL(3, network="dense", pretrain_epochs=1, epochs=1, device="cpu", augment=augment).fit(blobs[0])
