"""Seconds to import diffclust beyond torch and scikit-learn, and for `diffclust --help`: the best of five."""

import argparse
import subprocess
import sys
import time

NEEDED = "import torch, sklearn.base, sklearn.metrics, sklearn.callback, scipy.sparse"
IMPORT = f"import time; {NEEDED}; t = time.perf_counter(); import diffclust; diffclust.TELL, diffclust.KMeansNet; "


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    extra, shown = [], []
    for _ in range(5):
        code = IMPORT + "print(time.perf_counter() - t)"
        extra.append(float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout))
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "diffclust", "--help"], capture_output=True, check=True)
        shown.append(time.perf_counter() - began)
    print(f"import beyond torch and scikit-learn: {min(extra):.3f} s (target 0.3)")
    print(f"diffclust --help: {min(shown):.3f} s (target 0.5)")


if __name__ == "__main__":
    main()
