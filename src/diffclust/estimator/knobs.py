"""A knob is one setting of an estimator. Its default and its allowed values are declared once, with the field."""

import functools
import math
import numbers
import types
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

MAX_FLOAT32 = float(np.finfo(np.float32).max)  # what tensors can hold


@dataclass(frozen=True)
class Limits:
    low: float | None = None
    above: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[Any], None] | None = None


def knob(
    default: Any,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    choices: Collection[str] = (),
    check: Callable[[Any], None] | None = None,
    kw_only: bool = True,
) -> Any:
    """A dataclass field with a default and limits. The allowed types follow from its annotation: `bool`, `int`, `float`
    (finite in float32), None, a Callable, the strings of a Literal, or a union of these. Any other type in the
    annotation, such as `str` or `Any`, allows every type. A subclass that only changes the default keeps the limits.

    Args:
        low: smallest allowed number.
        above: numbers must be larger than this.
        high: largest allowed number.
        choices: allowed strings, if they are listed in a table elsewhere that a Literal would repeat.
        check: a function of the value that raises, for rules that the other arguments cannot express.
    """
    limits = Limits(low, above, high, tuple(choices), check)
    return field(default=default, kw_only=kw_only, metadata={"limits": limits})


def check_seed(value: Any) -> None:
    """Check `random_state`."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.bool_))
    if not (value is None or isinstance(value, np.random.RandomState) or (whole and 0 <= value < 2**32)):
        said = "None, an integer from 0 to 4294967295 or a numpy RandomState"
        raise (ValueError if whole else TypeError)(f"random_state={value!r:.50} should be {said}.")


def check_knobs(estimator: object) -> None:
    """Raise a TypeError or a ValueError for the first setting with an invalid value."""
    cls: type = type(estimator)
    for rule in rules_of(cls):
        rule.check(getattr(estimator, rule.name))


@dataclass(frozen=True)
class Rule:
    """The allowed values of one knob."""

    name: str
    kinds: frozenset[Any]  # of bool, int, float, NoneType and Callable
    words: tuple[str, ...]
    is_open: bool  # it may be something of another kind
    limits: Limits

    @classmethod
    def of(cls, name: str, annotation: Any, limits: Limits) -> "Rule":
        kinds, words, is_open = set(), list(limits.choices), False
        for part in _members(annotation):
            if part in (bool, int, float, types.NoneType):
                kinds.add(part)
            elif get_origin(part) is Literal:
                words += get_args(part)
            elif get_origin(part) is Callable:
                kinds.add(Callable)
            elif not (part is str and words):
                is_open = True
        return cls(name, frozenset(kinds), tuple(words), is_open, limits)

    def check(self, value: Any) -> None:
        if self.limits.check is not None:
            self.limits.check(value)
        elif not self.is_open and not self.allows(value):
            raise self.error(value)

    def allows(self, value: Any) -> bool:
        if isinstance(value, str):
            return value in self.words
        if isinstance(value, (bool, np.bool_)):  # before numbers: a bool is an int, too
            return bool in self.kinds
        if isinstance(value, numbers.Real):
            return self._is_number(value) and self._is_within(value)
        if value is None:
            return types.NoneType in self.kinds
        return Callable in self.kinds and callable(value)

    def _is_number(self, value: Any) -> bool:
        if isinstance(value, (bool, np.bool_)):
            return False
        kind = numbers.Real if float in self.kinds else numbers.Integral if int in self.kinds else ()
        return isinstance(value, kind)

    def _is_within(self, value: Any) -> bool:
        low, above, high = self.limits.low, self.limits.above, self.limits.high
        return (
            abs(value) <= MAX_FLOAT32
            and (low is None or value >= low)
            and (above is None or value > above)
            and (high is None or value <= high)
        )

    def error(self, value: Any) -> Exception:
        if self._is_number(value) and MAX_FLOAT32 < abs(value) < math.inf:
            return ValueError(f"{self.name}={value!r:.50} is too large for float32: {MAX_FLOAT32:.2g} at most.")
        if int in self.kinds and self._is_number(value):
            return ValueError(f"{self.name}={value} should be >= {self.limits.low:g}.")
        kind = TypeError if int in self.kinds else ValueError
        return kind(f"{self.name}={value!r} should be {self.allowed()}.")

    def allowed(self) -> str:
        """The allowed values, in words."""
        words = [repr(word) for word in self.words]
        words += ["True", "False"] if bool in self.kinds else []
        if self.kinds <= {bool}:
            return f"one of {', '.join(words)}"
        words += ["None"] if types.NoneType in self.kinds else []
        words += ["a callable"] if Callable in self.kinds else []
        if int in self.kinds or float in self.kinds:
            words.append(self._number())
        return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))

    def _number(self) -> str:
        low, above, high = self.limits.low, self.limits.above, self.limits.high
        kind = "an integer" if float not in self.kinds else "a number" if high is not None else "a finite number"
        if low is not None and high is not None:
            return f"{kind} from {low:g} to {high:g}"
        bounds = [f"{sign} {bound:g}" for sign, bound in ((">=", low), (">", above), ("<=", high)) if bound is not None]
        return f"{kind} {' and '.join(bounds)}".rstrip()


@functools.cache  # annotations are slow to read, and every fit asks
def rules_of(cls: type) -> tuple[Rule, ...]:
    annotations = get_type_hints(cls)
    return tuple(Rule.of(each.name, annotations[each.name], _limits(cls, each.name)) for each in fields(cls))


def _limits(cls: type, name: str) -> Limits:
    """Those of the nearest class that states some."""
    for base in cls.__mro__:
        declared = vars(base).get("__dataclass_fields__", {}).get(name)
        if declared is not None and "limits" in declared.metadata:
            return declared.metadata["limits"]
    return Limits()


def _members(annotation: Any) -> list[Any]:
    """The members of a union, or the annotation itself."""
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for member in get_args(annotation) for part in _members(member)]
    return [annotation]
