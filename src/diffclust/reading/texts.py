"""Texts as rows: tf-idf of the commonest terms."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

TERMS = 2000  # largest number of terms, as in the papers
LIMITS_FROM = 100  # number of texts, from which on terms in only one of them, or in more than half, are left out
WITHOUT_SPACES = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")  # Thai, Japanese, Chinese


@dataclass(frozen=True)
class Words:
    """How texts become rows: counts of terms times their weights, scaled to length one (tf-idf).

    damped: use 1 + log(count) instead of the count.
    characters: terms are one or two characters, for languages without spaces between words.
    """

    terms: list[str]
    weights: list[float]  # log((1 + n) / (1 + texts with the term)) + 1
    damped: bool = False
    characters: bool = False

    @classmethod
    def fit(cls, texts: Sequence[str]) -> Self:
        """Choose the commonest terms of these texts, without those in nearly all texts and those in only one."""
        characters = is_without_spaces(texts)
        limits: dict[str, Any] = {"min_df": 2, "max_df": 0.5} if len(texts) >= LIMITS_FROM else {}
        vectorizer = _vectorizer(True, characters, max_features=TERMS, **limits)
        try:
            vectorizer.fit(texts)
        except ValueError:  # no term is left: texts have no words, or no common ones
            vectorizer = _vectorizer(True, characters, max_features=TERMS).fit(texts)
        return cls(vectorizer.get_feature_names_out().tolist(), vectorizer.idf_.tolist(), True, characters)

    def transform(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Convert texts to rows; unknown terms are ignored."""
        vectorizer = _vectorizer(self.damped, self.characters, vocabulary=self.terms)
        vectorizer.idf_ = np.array(self.weights)
        return vectorizer.transform(texts).astype(np.float32)

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_dict(cls, saved: Any) -> Self:
        try:
            words = cls(
                [str(term) for term in saved["terms"]],
                [float(weight) for weight in saved["weights"]],
                bool(saved.get("damped", False)),
                bool(saved.get("characters", False)),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"not a list of words as diffclust saves it ({error!r}).") from error
        if not words.terms or not len(set(words.terms)) == len(words.terms) == len(words.weights):
            raise ValueError(f"not one weight for each of {len(words.terms)} different words.")
        return words

    @classmethod
    def from_json(cls, text: str) -> Self:
        try:
            saved = json.loads(text)
        except ValueError as error:
            raise ValueError(f"not a list of words as diffclust saves it ({error!r}).") from error
        return cls.from_dict(saved)


def _vectorizer(damped: bool, characters: bool, **options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    how: dict[str, Any] = {"analyzer": "char_wb", "ngram_range": (1, 2)} if characters else {}
    return TfidfVectorizer(sublinear_tf=damped, **how, **options)


def is_without_spaces(texts: Sequence[str]) -> bool:
    """Whether a third of the characters belong to languages without spaces between words."""
    some = "".join(texts[:1000])
    return len(WITHOUT_SPACES.findall(some)) > len(some) / 3


def telling_words(means: np.ndarray, terms: Sequence[str], n: int) -> list[list[str]]:
    """The most distinctive words of each cluster: class-based tf-idf, from the mean weights of terms (k, t).

        m_jt log(1 + A / Σ_j m_jt),   A the mean over terms of Σ_j m_jt

    Grootendorst: "BERTopic: Neural topic modeling with a class-based TF-IDF procedure", 2022."""
    whole = means.sum(0)
    score = means * np.log1p(whole.mean() / np.where(whole > 0, whole, np.inf))
    order = np.argsort(-score, axis=1, kind="stable")[:, :n]
    return [[str(terms[i]) for i in line if score[j, i] > 0] for j, line in enumerate(order)]
