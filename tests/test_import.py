"""Importing is light."""

import subprocess
import sys


def test_importing_brings_little_beyond_torch_and_scikit_learn():
    """What it costs is measured by benchmarks/startup.py."""
    code = (
        "import sys, torch, scipy.sparse, sklearn.base, sklearn.metrics, sklearn.callback; before = set(sys.modules);"
        "import diffclust; diffclust.TELL, diffclust.KMeansNet;"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    new = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "diffclust" in new
    assert not {"pandas", "matplotlib", "rich", "typer", "PIL", "pyarrow", "plotly"} & set(new)
