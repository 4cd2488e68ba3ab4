"""`python -m primecast`: the same commands, for launchers that start a module."""

from primecast.cli import main

main()
