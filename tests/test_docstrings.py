"""Every public name says what it is, and every setting of an estimator is explained, where tools look for it."""

import importlib
import inspect
import re

import pytest

import diffclust
from diffclust import baselines
from diffclust.estimator.base import PrototypeClusterer
from diffclust.methods import METHODS, TRANSDUCTIVE

MODULES = ("nn", "metrics", "callbacks", "datasets", "plot", "explain", "baselines")
ESTIMATORS = [*(method.load() for method in (*METHODS, *TRANSDUCTIVE))]
ESTIMATORS += [getattr(baselines, name) for name in baselines.__all__ if name not in ("BASELINES", "Baseline")]


def public():
    yield from ((f"diffclust.{name}", getattr(diffclust, name)) for name in diffclust.__all__)
    for module in (importlib.import_module(f"diffclust.{name}") for name in MODULES):
        yield from ((f"{module.__name__}.{name}", getattr(module, name)) for name in module.__all__)


def own_doc(thing):
    """What a thing says itself; what dataclasses and named tuples say for it is a signature."""
    doc = (vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__) or ""
    return "" if inspect.isclass(thing) and doc.startswith(f"{thing.__name__}(") else inspect.cleandoc(doc)


def section(doc, name):
    """The names in a section of a Google style docstring."""
    found = re.search(rf"^{name}:\n((?:    .*\n?|\n)+)", doc, flags=re.MULTILINE)
    return re.findall(r"^    (\w+): \S", found[1], flags=re.MULTILINE) if found else []


def documented(estimator, name="Args"):
    return {each for cls in estimator.__mro__ for each in section(own_doc(cls), name)}


def test_every_public_name_has_a_docstring():
    silent = [name for name, thing in public() if (callable(thing) or inspect.ismodule(thing)) and not own_doc(thing)]
    assert silent == []


def test_every_public_method_has_a_docstring():
    classes = {thing for _, thing in public() if inspect.isclass(thing)} | {PrototypeClusterer}
    silent = [
        f"{cls.__name__}.{name}"
        for cls in classes
        for name, value in inspect.getmembers(cls)
        if not name.startswith("_")
        and (inspect.isroutine(value) or isinstance(value, property))
        and (getattr(value, "__module__", None) or cls.__module__).startswith("diffclust")
        and not inspect.getdoc(inspect.getattr_static(cls, name) if isinstance(value, property) else value)
    ]
    assert sorted(silent) == []


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda cls: cls.__name__)
def test_every_setting_is_documented_and_every_documented_one_exists(estimator):
    settings = set(inspect.signature(estimator).parameters)
    assert settings - documented(estimator) == set()
    assert set(section(own_doc(estimator), "Args")) - settings == set()


def test_fitted_attributes_are_documented(blobs):
    model = diffclust.AEKMeans(2, network="identity", epochs=0, random_state=0).fit(blobs[0])
    fitted = {name for name in vars(model) if name.endswith("_") and not name.startswith("_")}
    assert fitted - documented(type(model), "Attributes") == set()


def test_a_section_is_read_as_sphinx_reads_it():
    napoleon = pytest.importorskip("sphinx.ext.napoleon")
    text = str(napoleon.GoogleDocstring(own_doc(diffclust.TELL), napoleon.Config(napoleon_use_param=True)))
    assert re.findall(r":param (\w+):", text) == section(own_doc(diffclust.TELL), "Args")
