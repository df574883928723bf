import pytest

from diffclust import TELL
from diffclust.callbacks import TrainingRecord


@pytest.fixture(scope="session")
def browser():
    """One for all tests: starting it is slow."""
    from browser import Browser

    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def images(digits, tmp_path_factory):
    """A report of images, with labels and a record of training; and the model and rows it is about."""
    X, y = digits
    record = TrainingRecord(frames=3, sample=60)
    model = TELL(4, pretrain_epochs=10, epochs=6, random_state=0, device="cpu", callbacks=[record]).fit(X)
    return model.report(tmp_path_factory.mktemp("images") / "report.html", X, y, layout="PCA"), model, X
