"""`python -m primecast`: the same commands, for launchers that start a module."""

from primecast.cli.app import main

main()
