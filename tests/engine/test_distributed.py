import json
import os
import signal
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import diffclust
from conftest import usual_size
from diffclust.engine import rows as engine_rows
from diffclust.engine.data import Data
from diffclust.engine.distributed import Processes
from diffclust.engine.feed import Feed
from diffclust.engine.rows import ArrayRows, TensorRows
from diffclust.engine.runtime import Randomness
from processes import PROCESSES

sys.path.insert(0, str(Path(__file__).parent))
import shared_fits

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

CPU = torch.device("cpu")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """For what was found: one for all, where the tests themselves run in several processes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "distributed"
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            folder.mkdir()
            X, y = make_blobs(6000, 8, centers=3, cluster_std=0.5, random_state=0)
            np.save(folder / "rows.npy", X.astype(np.float32))
            np.save(folder / "y.npy", y)
            np.save(folder / "images.npy", shared_fits.images(shared_fits.KILLED_ROWS))
            launch(folder)
            with usual_size():  # as in the other processes
                (folder / "one.json").write_text(json.dumps(shared_fits.outcomes()))
    return folder


def launch(folder):
    """The same work in two processes."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    processes = []
    for rank in map(str, range(2)):
        variables = {**place, "RANK": rank, "LOCAL_RANK": rank}
        processes.append(PROCESSES.Process(target=shared_fits.together, args=[folder], kwargs=variables))
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(300)
        assert [process.exitcode for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()


@pytest.fixture(scope="module")
def two(folder):
    """What each of two processes found."""
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture(scope="module")
def one(folder):
    return json.loads((folder / "one.json").read_text())


FITS = [name for name, _, _ in shared_fits.fits()]


@pytest.mark.parametrize("name", [*FITS, "drawn"])
def test_processes_agree(two, name):
    assert two[0][name] == two[1][name]


CURE = "q.mean(0) and q.sum(0) are over the rows of one process: write batch.mean(q) and batch.total(q.sum(0))."
NOT_FINITE = "is not finite: p log p has no gradient where p is 0, so take entropies from logarithms (nn.ops.entropy)."


def recorded(history):
    """The numbers of each name in each phase, epoch by epoch."""
    found = {}
    for record in history:
        for name in record.keys() - {"phase", "epoch"}:
            found.setdefault((record["phase"], name), []).append(record[name])
    return found


def check_losses(alone, shared, first=1e-5):
    """Each term agrees in the first epoch in which it is not zero, and in the later ones, in which rounding has grown,
    roughly: by its own size, so that a small weight hides nothing. The earliest difference is told: it is the cause."""
    one, two = recorded(alone), recorded(shared)
    for (phase, name), values in (*one.items(), *two.items()):
        assert np.isfinite(values).all(), f"{phase}: {name} {NOT_FINITE}"
    assert len(alone) == len(shared) == 10  # of two steps
    assert one.keys() == two.keys()
    wrong = []
    for (phase, name), values in one.items():
        size = max(map(abs, values))
        begins = next((epoch for epoch, value in enumerate(values) if value), 0)
        for epoch, (a, b) in enumerate(zip(values, two[phase, name], strict=True)):
            tight, rough = {"rel": first, "abs": min(2e-6, 1e-4 * size)}, {"abs": min(1e-4, 1e-3 * size)}
            near = tight if epoch <= begins else rough
            if b != pytest.approx(a, **near):
                wrong.append((phase != "pretraining", epoch, f"{phase}: {name}, epoch {epoch}: {b:.7g}, alone {a:.7g}"))
    assert not wrong, f"{min(wrong)[2]}. {CURE}"


@pytest.mark.parametrize("name", [name for name in FITS if name not in shared_fits.CARELESS])
def test_two_do_as_one(one, two, name):
    """A method that fails here most likely takes a mean or a sum over the rows that one process has."""
    first = 2e-4 if "neighbours" in name else 1e-5  # their pretraining has a high rate, which rounding grows by
    check_losses(one[name]["history"], two[0][name]["history"], first)
    assert adjusted_rand_score(one[name]["labels"], two[0][name]["labels"]) == 1
    np.testing.assert_allclose(two[0][name]["figures"], one[name]["figures"], rtol=0.01)


@pytest.mark.parametrize("name", shared_fits.CARELESS)
def test_a_mean_over_half_a_batch_would_show(one, two, name):
    with pytest.raises(AssertionError, match="write batch"):
        check_losses(one[name]["history"], two[0][name]["history"])


def test_a_loss_that_is_not_finite_is_not_taken_for_a_mean_over_half_a_batch():
    history = shared_fits.build(shared_fits.Undefined).fit(shared_fits.rows()).history_
    with pytest.raises(AssertionError, match="is not finite: p log p"):
        check_losses(history, history)


def test_sums_are_exact(two):
    for whole, *halves in zip(shared_fits.exact(slice(None)), *(each["exact"] for each in two), strict=True):
        for i, value in enumerate(whole["rows"]):
            np.testing.assert_allclose(np.concatenate([half["rows"][i] for half in halves]), value, rtol=1e-9)
        for half in halves:
            for got, value in zip(half["all"], whole["all"], strict=True):
                np.testing.assert_allclose(got, value, rtol=1e-9, atol=1e-13)


def test_one_callback_stops_all(two):
    epochs = [record["epoch"] for record in two[0]["stopped"]["history"]]
    assert epochs == [0, 1, 2, 0, 1, 2]
    assert two[0]["stopped"] == two[1]["stopped"]


def test_restarts_and_random_rows(two):
    """Without a seed, with augmented images: the same for all."""
    assert two[0]["restarts"] == two[1]["restarts"]
    assert len(set(two[0]["restarts"]["runs"])) == 3


def test_a_file(two, folder):
    assert two[0]["file"] == two[1]["file"]
    assert adjusted_rand_score(two[0]["file"]["labels"], np.load(folder / "y.npy")) == 1


def test_answers_are_not_shared(two):
    assert two[0]["alone"][0] == two[0]["alone"][1]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("no rows", "Found array with 0 sample(s)"),
        ("fewer rows", "62 rows of (6,)"),
        ("values", "differ in the values of the data"),
        ("nan", "first in row 40"),
        ("settings", "differ in n_clusters"),
        ("one setting", "batch_size=1 should be >= 2"),
        *((name, f"{name} cannot be shared by 2 processes: ") for name in shared_fits.INDIVISIBLE),
        ("SSC", "SSC cannot be shared"),
    ],
)
def test_what_fails_in_one_fails_in_all(two, case, words):
    for each in two:
        assert each["errors"][case].startswith("ValueError")
        assert words in each["errors"][case]


def test_a_full_disk_stops_no_process(two):
    assert two[0]["full disk"] == two[1]["full disk"] == two[0]["uninterrupted"]


@pytest.fixture
def handlers_of_signals():
    """Those of before, afterwards: torch's own stay where it has started processes."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers_of_signals")
def test_a_killed_process_is_started_again(two, folder):
    """By what torchrun calls when it has read its arguments."""
    elastic = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=2, max_restarts=1, run_id="killed", rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0", start_method="forkserver", monitor_interval=0.05,
    )  # fmt: skip
    elastic_launch(elastic, shared_fits.killed)(folder)
    told = dict(mark.rsplit(":", 1) for mark in (folder / "restored").read_text().split())
    assert told.keys() == {"0:1", "1:1"}  # both, the second time
    assert len(set(told.values())) == 1
    assert int(told["0:1"]) >= 1
    assert (folder / "said").read_text().count("Saved to") == 1  # one speaks
    assert not list((folder / "ckpt").iterdir())
    model = diffclust.load(folder / "out", device="cpu")
    assert model.labels_.tolist() == two[0]["uninterrupted"]["labels"]
    assert model.history_ == two[0]["uninterrupted"]["history"]


# ---- seen from one process


def shares(rows, size, **settings):
    return [Data(rows, CPU, processes=Processes(rank, size), **settings) for rank in range(size)]


def orders(parts, seed=0):
    """An epoch's row numbers, (steps, batch) of each."""
    feeds = []
    for data in parts:
        with Randomness(seed, CPU).borrowed():
            feed = Feed(data)
            feed.begin_epoch()
        feeds.append(feed.order)
    return feeds


@pytest.mark.parametrize(("n", "batch_size", "size"), [(100, 10, 3), (1003, 64, 7), (50, 50, 4)])
def test_parts_make_the_same_batches(n, batch_size, size):
    rows = TensorRows(torch.arange(n)[:, None].float())
    (whole,) = orders(shares(rows, 1, batch_size=batch_size))
    parts = orders(shares(rows, size, batch_size=batch_size))
    assert torch.equal(torch.cat(parts, dim=1), whole)


@pytest.mark.parametrize("size", [2, 3])
def test_blocks_stay_with_their_process(size, monkeypatch):
    monkeypatch.setattr(engine_rows, "BLOCK_BYTES", 128)  # 32 rows
    monkeypatch.setattr(engine_rows, "SHUFFLED_BLOCKS", 4)
    monkeypatch.setattr(ArrayRows, "window", 4)
    n = 1000
    rows = ArrayRows(np.arange(n, dtype=np.float32)[:, None], (1,), lambda x: x)
    assert rows.edges() is not None
    parts = shares(rows, size, batch_size=50)
    assert [row for data in parts for row in data.own] == list(range(n))
    first, second = orders(parts), orders(parts, seed=1)
    for data, order, other in zip(parts, first, second, strict=True):
        seen = order.flatten().tolist()
        assert len(set(seen)) == len(seen)
        assert set(seen) <= set(data.own)
        assert seen != other.flatten().tolist()
    assert sum(order.shape[1] for order in first) == 50
    assert sum(order.numel() for order in first) == n


def test_too_many_processes():
    with pytest.raises(ValueError, match="8 processes cannot share batches of 5 rows, out of 10: 3 of them would have"):
        Data(TensorRows(torch.zeros(10, 2)), CPU, batch_size=5, processes=Processes(7, 8))


def test_branches_of_randomness_differ_and_take_nothing():
    common, same = Randomness(0, CPU), Randomness(0, CPU)
    drawn = []
    for number in (0, 1):
        with common.branch(number).borrowed():
            drawn.append(torch.rand(4))
    assert not torch.equal(*drawn)
    with same.branch(1).borrowed():
        assert torch.equal(torch.rand(4), drawn[1])
    with common.borrowed():
        first = torch.rand(4)
    with same.borrowed():
        assert torch.equal(torch.rand(4), first)


def test_alone_nothing_happens(blobs):
    plain = diffclust.TELL(3, network="identity", epochs=2, random_state=0, device="cpu").fit(blobs[0])
    with diffclust.distributed() as processes:
        assert processes == Processes(0, 1)
        inside = diffclust.TELL(3, network="identity", epochs=2, random_state=0, device="cpu").fit(blobs[0])
    assert inside.history_ == plain.history_
    assert not torch.distributed.is_initialized()


def test_only_fit_is_for_several_processes(refused, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    refused("methods", says="only 'fit' can run in several processes")
