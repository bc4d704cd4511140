"""`python -m oscine`: the same as the installed command."""

from oscine.cli import main

main()
