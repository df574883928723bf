"""Explanations and reports of a fitted estimator."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..engine.runtime import without_caller_modes
from ..explain.clusters import ClusterExplanation, explain_cluster
from ..explain.model import ModelExplanation, explain_model
from ..explain.pairs import PairExplanation, explain_pair
from ..explain.rows import Baseline, Explanations, explain_rows
from ..report import InlineReport, inline_report, write_report
from ..report.material import ReportOptions
from .state import snapshot


class ExplanationMixin:
    """Explanations and reports of a fitted estimator. They need a `model_` with `embed` and either `clusters.logits`
    (exact if these are linear) or `assign`; everything else comes from the fitted attributes."""

    @without_caller_modes()
    def explain(
        self,
        X: Any,
        *,
        attributions: bool = True,
        baseline: Baseline = "auto",
        feature_names: Sequence[str] | None = None,
    ) -> Explanations:
        """Explain each row: its cluster, the runner-up, and the contributions to the margin between them.

        Args:
            X: the rows to explain.
            attributions: also attribute the margin to the input features, by integrated gradients if there is a network
                (some hundred passes through the encoder per row).
            baseline: the input that attributions are relative to: "runner-up" (its decoded centre), "zero", or one row
                as an array. "auto": zero for sparse rows, the runner-up otherwise.
            feature_names: names of the columns of X; by default those of the data frame that `fit` saw.
        """
        return explain_rows(
            snapshot(self), X, attributions=attributions, baseline=baseline, feature_names=feature_names
        )

    @without_caller_modes()
    def explain_cluster(
        self, j: int, X: Any = None, *, feature_names: Sequence[str] | None = None, n: int = 10
    ) -> ClusterExplanation:
        """Describe cluster j: its size, nearest clusters, decoded centre and distinctive features; with the rows X also
        how tight it is and its `n` most typical and most doubtful rows."""
        return explain_cluster(snapshot(self), j, X, feature_names=feature_names, n=n)

    @without_caller_modes()
    def explain_pair(
        self,
        a: Any,
        b: Any,
        *,
        attributions: bool = True,
        baseline: Baseline = "auto",
        feature_names: Sequence[str] | None = None,
    ) -> PairExplanation:
        """Explain why the rows a and b (each one row, or an X of one row) share a cluster or not."""
        return explain_pair(
            snapshot(self), a, b, attributions=attributions, baseline=baseline, feature_names=feature_names
        )

    @without_caller_modes()
    def explain_model(self) -> ModelExplanation:
        """Describe the parts of the model, whether training converged, and what was repaired."""
        return explain_model(snapshot(self))

    @without_caller_modes()
    def report(
        self, path: str | os.PathLike[str] | None = None, X: Any = None, y: Any = None, **options: Any
    ) -> Path | InlineReport:
        """Write one self-contained HTML page about the fitted model and the rows X. Needs `diffclust[report]`.

        Args:
            path: file to write. Without it, `model.report(X=X)` shows the page in a notebook.
            X: rows, as for `predict`.
            y: true labels, used only for scores and a confusion matrix.
            record: a `TrainingRecord` for the slider over epochs; by default the one among `callbacks`.
            captions: a caption for each row, such as a file name; by default what a table says about it.
            texts: a text for each row, for example of embeddings: shown with the row, and used to describe clusters by
                words.
            thumbnails: an image for each row, (n, h, w) or (n, h, w, c), for example of embeddings.
            names: names of clusters and rows: a file that a report has exported, the result of `load_names`, or a
                dictionary cluster -> name. They override the model's `names_`.
            feature_names: names of the columns.
            title: title of the page.
            sample: number of rows that the page shows (2000).
            layout: layout of the map, "t-SNE" or "PCA".
        """
        if X is None:
            raise TypeError("report needs the rows X: model.report(path, X), or model.report(X=X) in a notebook.")
        wishes = ReportOptions(**options)
        if path is None:
            return inline_report(snapshot(self), X, y, wishes)
        return write_report(snapshot(self), path, X, y, wishes)
