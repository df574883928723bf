"""The format of saved models: its number, and the conversion of files with older numbers.

1   settings and tensors with checksums; the command adds files without checksums
2   all files have checksums, also the words of texts, the record of training and the labels; `origin_` is saved

If a change would make an older version misread a file, FORMAT is raised by one, and a function here converts files of
the previous number. What an older version can ignore needs no new number.
"""

from collections.abc import Callable
from typing import Any

FORMAT = 2
PARTS = ("class", "params", "fitted_with", "network", "shape", "feature_names", "fitted", "runs")
Settings = dict[str, Any]


def migrated(settings: Settings) -> Settings:
    """Convert settings of any known format to the current one."""
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
    settings.setdefault("fitted_with", dict(settings["params"]))  # missing in the first files
    for diagnostics in (settings["fitted"]["diagnostics_"], *(run["diagnostics"] for run in settings["runs"])):
        if "reports" in diagnostics:  # the old name of events
            diagnostics["events"] = diagnostics.pop("reports")


MIGRATIONS: dict[int, Callable[[Settings], None]] = {1: _from_1}
