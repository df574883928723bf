"""The format of saved models: its number, and how files of former numbers become files of this one.

1   settings and tensors with checksums; beside them, unchecked, what the command left there
2   the checksums are of all that was saved together: the words of texts, the record of training, the labels, too;
    `origin_`, where rows were far from zero

When something changes that an older version would misread, FORMAT grows by one, and a function here brings files of the
number before it to it. What older versions merely do not know needs no new number.
"""

from collections.abc import Callable
from typing import Any

FORMAT = 2
PARTS = ("class", "params", "fitted_with", "network", "shape", "feature_names", "fitted", "runs")
Settings = dict[str, Any]


def migrated(settings: Settings) -> Settings:
    """Settings of any known format, as this version writes them."""
    number = settings.get("format")
    writer = settings.get("diffclust", "an unknown version")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError(f"its format number is {number!r}, which no version of diffclust writes")
    if number > FORMAT:
        raise ValueError(
            f"it has format {number}, written by diffclust {writer}; this version reads formats 1 to {FORMAT}: "
            "install a newer diffclust"
        )
    for step in range(number, FORMAT):
        MIGRATIONS[step](settings)
        settings["format"] = step + 1
    missing = [name for name in PARTS if name not in settings]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing: it was written by diffclust {writer}, fit and save it again")
    return settings


def _from_1(settings: Settings) -> None:
    settings.setdefault("fitted_with", dict(settings["params"]))  # the first files had not this
    for diagnostics in (settings["fitted"]["diagnostics_"], *(run["diagnostics"] for run in settings["runs"])):
        if "reports" in diagnostics:  # the former name of events
            diagnostics["events"] = diagnostics.pop("reports")


MIGRATIONS: dict[int, Callable[[Settings], None]] = {1: _from_1}
