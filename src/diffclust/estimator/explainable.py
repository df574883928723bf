"""What a fitted estimator can say about itself."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..explain.clusters import ClusterExplanation, explain_cluster
from ..explain.model import ModelExplanation, explain_model
from ..explain.pairs import PairExplanation, explain_pair
from ..explain.rows import Baseline, Explanations, explain_rows
from ..report import InlineReport, inline_report, write_report
from ..report.material import ReportOptions
from .state import snapshot


class Explainable:
    """What a fitted estimator can say about itself. It needs `model_` with `embed` and either `clusters.logits` (exact,
    where these are linear) or `assign`; the rest is read off the fitted attributes."""

    def explain(
        self,
        X: Any,
        *,
        attributions: bool = True,
        baseline: Baseline = "auto",
        feature_names: Sequence[str] | None = None,
    ) -> Explanations:
        """One explanation a row: its cluster, the runner-up, and the margin between them taken apart.

        Args:
            attributions: carry the margin back to the input, by integrated gradients where there is a network: some
                hundred passes through the encoder a row.
            baseline: the input that attributions compare with: "runner-up" (its decoded centre), "zero", or one row as
                an array. "auto": zero for sparse rows, the runner-up otherwise.
            feature_names: of the columns of X; by default those of the data frame `fit` saw.
        """
        return explain_rows(
            snapshot(self), X, attributions=attributions, baseline=baseline, feature_names=feature_names
        )

    def explain_cluster(
        self, j: int, X: Any = None, *, feature_names: Sequence[str] | None = None, n: int = 10
    ) -> ClusterExplanation:
        """Cluster j: size, neighbours, decoded centre, what sets it apart; with the rows X also how tight it is and
        its `n` most typical and most doubtful rows."""
        return explain_cluster(snapshot(self), j, X, feature_names=feature_names, n=n)

    def explain_pair(
        self,
        a: Any,
        b: Any,
        *,
        attributions: bool = True,
        baseline: Baseline = "auto",
        feature_names: Sequence[str] | None = None,
    ) -> PairExplanation:
        """Why the rows a and b (each one row, or an X of one row) are together or apart."""
        return explain_pair(
            snapshot(self), a, b, attributions=attributions, baseline=baseline, feature_names=feature_names
        )

    def explain_model(self) -> ModelExplanation:
        """The parts of the model, whether training converged, what was repaired."""
        return explain_model(snapshot(self))

    def report(
        self, path: str | os.PathLike[str] | None = None, X: Any = None, y: Any = None, **options: Any
    ) -> Path | InlineReport:
        """Write one self-contained HTML page about the fitted model and the rows X; needs `diffclust[report]`.

        Args:
            path: of the page. Without one, `model.report(X=X)` shows it in a notebook.
            X: rows, as for `predict`.
            y: true labels, for scores and a confusion matrix; nothing else uses them.
            record: a `TrainingRecord`, for the slider over epochs; by default the one among `callbacks`.
            captions: what to call each row: a file, a name; by default what a table says of it.
            texts: a text for each row, of embeddings, say: shown with it, and clusters have their words from it.
            thumbnails: a picture for each row (n, h, w) or (n, h, w, c), of embeddings, say.
            names: of clusters and rows: a file that a report has exported, what `load_names` gives, or a dictionary
                cluster -> name. They go before the model's `names_`.
            feature_names: of the columns.
            title: of the page.
            sample: how many rows the page shows (2000).
            layout: of the map, "t-SNE" or "PCA".
        """
        if X is None:
            raise TypeError("report needs the rows X: model.report(path, X), or model.report(X=X) in a notebook.")
        wishes = ReportOptions(**options)
        if path is None:
            return inline_report(snapshot(self), X, y, wishes)
        return write_report(snapshot(self), path, X, y, wishes)
