"""`python -m diffclust` is the command `diffclust`."""

from .cli import main

main()
