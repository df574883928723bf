"""The report on the front page: the digits, fitted by the build when the code is newer than the page."""

from pathlib import Path

from diffclust import TELL, datasets
from diffclust.callbacks import TrainingRecord

SOURCE = Path(__file__).parent.parent / "src"


def write(docs: Path) -> None:
    """docs/extra/report.html; training is short, and takes seconds."""
    page = docs / "extra" / "report.html"
    changed = max(path.stat().st_mtime for path in SOURCE.rglob("*") if path.suffix in (".py", ".js", ".css", ".html"))
    if page.exists() and page.stat().st_mtime > changed:
        return
    X, y = datasets.load("digits")
    record = TrainingRecord(frames=4)
    model = TELL(10, n_init=3, pretrain_epochs=8, epochs=6, random_state=0, callbacks=[record]).fit(X)
    model.report(page, X, y, sample=1000, title="Handwritten digits, clustered by TELL")
