"""What grows with the orders in the tables, and what does not: the same work beside few finished orders and beside many.

  python -m benchmarks.growth [--orders 10000 1000000] [--data DIRECTORY] [--rounds 7]

Each size gets a database of its own on an embedded PostgreSQL, filled by statements. Each piece of work is measured by turns in all of
them, so that a busy machine slows all; the best of the rounds counts, and the pages that the database touched. --data keeps the
databases for the next run. At the end: bytes of an order, by table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import growth_seed, sizes
from supervision.embedded.server import EmbeddedPostgres
from supervision.management.base import at_least

WORK = ("claim", "sweep", "idle sweep", "landing page", "list of orders", "order page", "archive", "retention")
_SIZES = """
SELECT relname, pg_total_relation_size(c.oid) FROM pg_class c
 WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_total_relation_size(c.oid) > 1000000 ORDER BY 2 DESC
"""


def main() -> int:
    """Fill the databases, measure, and print a line for each piece of work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=at_least(4000), nargs="+", default=[10_000, 1_000_000], metavar="N")
    parser.add_argument("--data", type=Path, metavar="DIRECTORY", help="keep the databases here")
    parser.add_argument("--rounds", type=at_least(2), default=7, metavar="N")
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = options.data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sas-growth-")))
        stack.enter_context(EmbeddedPostgres(directory, fast=True))
        urls = {count: sizes.filled(directory, f"growth_{count}", growth_seed.statements(count)) for count in options.orders}
        _print_sizes(urls)
        found = _measured(urls, options.rounds)
    few, many = min(options.orders), max(options.orders)
    for name in WORK:
        cells = [found[count][name] for count in options.orders]
        times = "".join(f"{cell['ms']:>10.1f} ms {cell['pages']:>9,} pages" for cell in cells)
        ratio, pages = (found[many][name][what] / found[few][name][what] for what in ("ms", "pages"))
        print(f"{name:16}{times}  time x{ratio:.2f}  pages x{pages:.2f}", flush=True)
    return 0


def _print_sizes(urls: dict[int, str]) -> None:
    for count, url in urls.items():
        with psycopg.connect(url) as connection:
            sizes = connection.execute(_SIZES).fetchall()
        total = sum(size for _name, size in sizes)
        parts = ", ".join(f"{name.partition('_')[2]} {size / count:,.0f}" for name, size in sizes if size / count >= 20)
        print(f"{count:,} orders: {total / count:,.0f} bytes an order: {parts}", flush=True)


def _measured(urls: dict[int, str], rounds: int) -> dict[int, dict[str, Any]]:
    """The best of the rounds for each piece of work; the first round warms up and does not count."""
    found: dict[int, dict[str, Any]] = {count: {} for count in urls}
    with sizes.asked("benchmarks.growth_turn", urls) as ask:
        for name in WORK:
            for round_ in range(rounds):
                for count in urls:
                    answer = ask(count, name)
                    best = found[count].setdefault(name, answer)
                    found[count][name] = answer if round_ == 1 else {each: min(best[each], answer[each]) for each in answer}
    return found


if __name__ == "__main__":
    sys.exit(main())
