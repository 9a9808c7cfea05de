"""The command line: one module per subject, put together in ``app``."""

from fedapa.cli.app import app, main

__all__ = ["app", "main"]
