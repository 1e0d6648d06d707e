"""Makes the shop's tables for the API row: with products, an account, a token. Run as `python -m benchmarks.shop`.

The token goes into the file that BENCH_TOKEN names.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import django
from django.core.management import call_command

SKUS = ("MUG-BLUE", "TEAPOT-SAND")
STOCK = 100_000_000


def main() -> None:
    """Make the tables and their contents."""
    django.setup()
    call_command("migrate", interactive=False, verbosity=0, skip_checks=True)
    call_command("seed_catalogue", stdout=io.StringIO())
    for sku in SKUS:
        call_command("set_stock", sku, str(STOCK), stdout=io.StringIO())
    call_command("create_user", "bench", group="client", stdout=io.StringIO())
    said = io.StringIO()
    call_command("create_api_token", "bench", stdout=said, stderr=io.StringIO())
    Path(os.environ["BENCH_TOKEN"]).write_text(said.getvalue().split()[-1])


if __name__ == "__main__":
    main()
