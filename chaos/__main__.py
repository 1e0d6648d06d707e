"""`./run chaos`: break a running shop on purpose and prove that it kept its promises.

Exit code 0: every check held. 1: the report names the checks that failed, with the orders concerned.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from chaos import failover
from chaos.run import Options, run


def main() -> int:
    """Read the command line and run."""
    if sys.argv[1:2] == ["failover"]:
        return failover.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="./run chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long faults are injected (2)")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="decides faults and orders; drawn when not given")
    parser.add_argument("--broker", choices=["amqp", "redis", "pgmq"], default="pgmq", help="(pgmq)")
    parser.add_argument("--rate", type=float, default=3.0, help="orders per second, on average (3)")
    parser.add_argument("--complete-by", type=float, default=5.0, help="seconds each step may take (5)")
    parser.add_argument("--directory", type=Path, help="where logs and the report go (var/chaos/...)")
    parser.add_argument("--keep", action="store_true", help="keep the database's files")
    given = parser.parse_args()
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{given.broker}-{given.seed}"
    directory = (given.directory or Path(__file__).resolve().parent.parent / "var" / "chaos" / name).resolve()
    signal.signal(signal.SIGTERM, _leave)
    options = {**vars(given), "directory": directory}
    return run(Options(**options))


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
