"""The server half of the thin Flower app, for those who start runs with Flower's own tools.

``fedapa server`` does the same in a process of its own (running.py).
"""

import os
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedapa.errors import RunError
from fedapa.federation.network.running import carry_out_job
from fedapa.federation.network.server_folder import ServerFolder

__all__ = ["server_app"]

server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """The job of the server in $FEDAPA_SERVER."""
    if "FEDAPA_SERVER" not in os.environ:
        raise RunError("FEDAPA_SERVER is not set; start runs with 'fedapa server run'")
    carry_out_job(ServerFolder.open(Path(os.environ["FEDAPA_SERVER"])), grid)
