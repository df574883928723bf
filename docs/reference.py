"""The pages of the methods and of every public name, written before each build; autodoc and napoleon fill them in."""

import dataclasses
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import ideas  # docs/ideas.py
from sklearn.base import BaseEstimator

import diffclust
from diffclust.baselines import BASELINES
from diffclust.estimator.base import PrototypeClusterer
from diffclust.estimator.settings import SharedSettings
from diffclust.methods import METHODS, TRANSDUCTIVE, Method
from diffclust.methods.autoencoder import AutoencoderClusterer
from diffclust.reproduce.tables import TABLES

# What a method says to the engine; users call none of it.
HOOKS = (
    "auto_epochs",
    "build_autoencoder",
    "build_clusters",
    "build_model",
    "build_optimizer",
    "first_centers",
    "is_joint",
    "network_options",
    "online_learner",
    "online_step",
    "pretraining",
    "pretraining_plan",
    "resume_stream",
    "stream_state",
    "why_not_online",
)
FAMILIES = {PrototypeClusterer: "shared-parameters", AutoencoderClusterer: "family-parameters"}
# numpy's ArrayLike and NDArray as Sphinx spells them out, in signatures with and without the names of modules.
LIKE_ARRAY = re.compile(r"[~\w.]*_Buffer \| .+? \| [~\w.]*_NestedSequence\[complex \| bytes \| str\]")
ARRAY = re.compile(r"[~\w.]*ndarray\[tuple\[[~\w.]+, \.\.\.\], [~\w.]*dtype\[([~\w.]+)\]\]")
MODULES = ("nn", "metrics", "callbacks", "datasets", "plot", "explain", "baselines")


def write(docs: Path) -> None:
    """All pages of the reference, into docs/methods and docs/api."""
    for folder in (docs / "methods", docs / "api"):
        folder.mkdir(exist_ok=True)
    for method in (*METHODS, *TRANSDUCTIVE):
        (docs / "methods" / f"{method.name}.md").write_text(method_page(method))
    (docs / "methods" / "classical.md").write_text(classical_page())
    (docs / "api" / "index.rst").write_text(index_page())
    (docs / "api" / "estimators.rst").write_text(estimators_page())
    (docs / "api" / "functions.rst").write_text(functions_page())
    for name in MODULES:
        (docs / "api" / f"{name}.rst").write_text(module_page(name))


def settings_of(cls: type) -> dict[str, Any]:
    """Default of every parameter."""
    return {field.name: field.default for field in dataclasses.fields(cls)}


def own_settings(cls: type) -> dict[str, Any]:
    """The parameters that no family of methods explains."""
    shared = {name for family in FAMILIES if issubclass(cls, family) for name in settings_of(family)}
    return {name: default for name, default in settings_of(cls).items() if name not in shared}


def signature(cls: type, settings: dict[str, Any]) -> str:
    """A class with some of its parameters, the number of clusters first."""
    rest = "".join(f", {name}={default!r}" for name, default in settings.items() if name != "n_clusters")
    more = ", **shared" if len(settings) < len(settings_of(cls)) - 1 else ""
    return f"{cls.__name__}(n_clusters=8, *{rest}{more})"


def method_page(method: Method) -> str:
    cls = method.load()
    return f"""# {cls.__name__}

{sentence(method.title)} ({method.paper}).

```python
from diffclust import {cls.__name__}

labels = {cls.__name__}(n_clusters=10, random_state=0).fit_predict(X)
```

{ideas.picture(method.name)}
{ideas.advice(method.name)}
{ideas.numbers(method.name, method.estimator)}
## Parameters and attributes

```{{eval-rst}}
.. autoclass:: diffclust.{signature(cls, own_settings(cls))}
{"" if issubclass(cls, PrototypeClusterer) else "   :members:"}
```
{shared_part(cls)}
## The paper, as the file has it

```{{eval-rst}}
.. automodule:: {cls.__module__}
   :no-index:
```
{papers_part(cls)}{tables_with(method.name)}"""


def classical_page() -> str:
    """The classical methods, a line each."""
    lines = [
        f"| `{each.name}` | `{each.estimator}` | {each.title.replace('|', '&#124;')} | {each.paper} |"
        for each in BASELINES.values()
    ]
    return "\n".join(
        [
            "# Classical methods\n",
            "The methods that papers compare with. Use them by name with `diffclust compare`, or as estimators from",
            "{doc}`../api/baselines`. Methods that compare all pairs of rows check first whether the memory is",
            "enough; `spectral`, `lsc-k`, `lsc-r`, `sec`, `slrr` and `ssc` can handle many rows.\n",
            "```python\nfrom diffclust.baselines import BASELINES, LSC\n",
            'labels = BASELINES["lsc-k"](X, 10, 0)  # rows, clusters, seed',
            "labels = LSC(10, n_landmarks=500, random_state=0).fit_predict(X)\n```\n",
            "| name | estimator | what it does | paper |\n|---|---|---|---|",
            *lines,
            "",
        ]
    )


def sentence(text: str) -> str:
    """With a capital, but for k-means."""
    return text if text.startswith("k-") else text[0].upper() + text[1:]


def shared_part(cls: type) -> str:
    """Where the other parameters are explained, and those that have another default here."""
    families = [family for family in FAMILIES if issubclass(cls, family)]
    if not families:
        return ""
    known = {name: default for family in families for name, default in settings_of(family).items()}
    other = [
        f"`{name}={default!r}`" for name, default in settings_of(cls).items() if known.get(name, default) != default
    ]
    links = [f"{{ref}}`{FAMILIES[family]}`" for family in families]
    differing = f"\n\nDefaults that differ here: {', '.join(other)}." if other else ""
    return f"\n## Other parameters, attributes and methods\n\nSee {' and '.join(links)}.{differing}\n"


def papers_part(cls: type) -> str:
    lines = [
        f"- `{cls.__name__}.paper({name!r})`: " + ", ".join(f"`{key}={value!r}`" for key, value in settings.items())
        for name, settings in getattr(cls, "papers", {}).items()
    ]
    return "\n## The paper's settings\n\n{}\n".format("\n".join(lines)) if lines else ""


def tables_with(method: str) -> str:
    """The papers' tables that a method has a row in."""
    names = [
        f"- `diffclust reproduce {table.name}`: {table.title}"
        for table in TABLES.values()
        if any(row.spec is not None and row.spec.method == method for row in table.rows)
    ]
    return "\n## Tables in papers\n\n{}\n\nSee {{doc}}`../results`.\n".format("\n".join(names)) if names else ""


def title(text: str, line: str = "=") -> str:
    return f"{text}\n{line * len(text)}\n"


def listed(names: list[str]) -> str:
    """A table of names with the first sentence of each."""
    return ".. autosummary::\n   :nosignatures:\n\n" + "".join(f"   ~{name}\n" for name in names)


def functions() -> list[str]:
    return [name for name in diffclust.__all__ if inspect.isfunction(getattr(diffclust, name))]


def index_page() -> str:
    estimators = [f"diffclust.{method.estimator}" for method in (*METHODS, *TRANSDUCTIVE)]
    parts = [
        title("API reference"),
        "Every public name, by its module.\n",
        ".. toctree::\n   :hidden:\n\n   estimators\n   functions\n" + "".join(f"   {name}\n" for name in MODULES),
        title("Estimators", "-"),
        "Shared parameters, attributes and methods: :doc:`estimators`.\n",
        listed(estimators),
        title("Functions", "-"),
        listed([f"diffclust.{name}" for name in functions()]),
    ]
    for name in MODULES:
        module = importlib.import_module(f"diffclust.{name}")
        parts += [
            title(module.__name__, "-"),
            f"{inspect.getdoc(module).splitlines()[0].rstrip(':')} See :doc:`{name}`.\n",
        ]
        parts.append(listed([f"diffclust.{name}.{each}" for each in module.__all__]))
    return "\n".join(parts)


def estimators_page() -> str:
    shared = settings_of(PrototypeClusterer)
    extra = {name: value for name, value in settings_of(AutoencoderClusterer).items() if name not in shared}
    return "\n".join(
        [
            title("Estimators"),
            "This page documents what all methods share; :doc:`index` links to the page of each method. `fit_predict`,",
            "`fit_transform`, `get_params`, `set_params`, `set_output`, `get_feature_names_out` are scikit-learn's.\n",
            ".. _shared-parameters:\n",
            title("Shared parameters, attributes and methods", "-"),
            f".. autoclass:: {SharedSettings.__module__}.{signature(SharedSettings, shared)}\n",
            f".. autoclass:: {PrototypeClusterer.__module__}.{PrototypeClusterer.__name__}(**shared)",
            f"   :members:\n   :inherited-members:\n   :exclude-members: {', '.join(HOOKS)}\n",
            ".. _family-parameters:\n",
            title("Parameters of the autoencoder family", "-"),
            f".. autoclass:: {AutoencoderClusterer.__module__}.{signature(AutoencoderClusterer, extra)}\n",
        ]
    )


def functions_page() -> str:
    parts = [title("Functions"), *(f".. autofunction:: diffclust.{name}\n" for name in functions())]
    return "\n".join([*parts, ".. autoclass:: diffclust.engine.distributed.Processes\n   :members:\n"])


def module_page(name: str) -> str:
    """A module's public names, under the files they are from where there are several."""
    module = importlib.import_module(f"diffclust.{name}")
    if not hasattr(module, "__path__"):
        return f"{title(module.__name__)}\n.. automodule:: {module.__name__}\n   :members:\n"
    files: dict[str, list[str]] = {}
    for each in module.__all__:
        files.setdefault(getattr(getattr(module, each), "__module__", module.__name__), []).append(each)
    parts = [title(module.__name__), f".. automodule:: {module.__name__}\n"]
    for file, names in files.items():
        if file != module.__name__:
            parts += [title(file.removeprefix(f"{module.__name__}."), "-"), f".. automodule:: {file}\n   :no-index:\n"]
        for each in names:
            thing = getattr(module, each)
            kind = "class" if inspect.isclass(thing) else "function" if callable(thing) else "data"
            shown_above = ", ".join(["Module", *module.__all__])
            members = f"   :members:\n   :inherited-members: {shown_above}\n" if kind == "class" else ""
            parts.append(f".. auto{kind}:: {module.__name__}.{each}\n{members}")
    return "\n".join(parts)


def defaults(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """For autodoc-process-docstring, after napoleon: the default of every parameter of an estimator."""
    if what == "class" and dataclasses.is_dataclass(thing) and issubclass(thing, BaseEstimator):
        settings = settings_of(thing)
        for i in reversed(range(len(lines))):
            parameter = lines[i].removeprefix(":param ").partition(":")[0]
            if lines[i].startswith(":param ") and parameter in settings:
                lines.insert(i, f":type {parameter}: default {settings[parameter]!r}")


def short_arrays(
    app: Any, what: str, name: str, thing: Any, options: Any, arguments: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """For autodoc-process-signature: numpy's ArrayLike and NDArray by their names, not by the types they stand for."""
    arguments, returned = (
        text and ARRAY.sub(r"NDArray[\1]", LIKE_ARRAY.sub("ArrayLike", text)) for text in (arguments, returned)
    )
    return arguments, returned


def foreign(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """For autodoc-skip-member: what scikit-learn and PyTorch document themselves, and fields that signatures name."""
    if (inspect.getdoc(thing) or "").startswith("Alias for field number"):
        return True
    home = getattr(thing.fget if isinstance(thing, property) else thing, "__module__", None)
    builtin = home is None and inspect.isroutine(thing)
    return True if builtin or not (home or "diffclust").startswith("diffclust") else None
