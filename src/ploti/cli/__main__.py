"""`python -m ploti.cli` is the `ploti` command."""

from ploti.cli import main

main()
