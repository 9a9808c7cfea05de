"""``python -m fedapa`` is the command line."""

from fedapa.cli import main

main()
