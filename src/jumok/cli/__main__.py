"""`python -m jumok.cli` is the same as `jumok`."""

from jumok.cli import main

main()
