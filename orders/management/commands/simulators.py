"""`manage.py simulators`: payment service, carrier and mail server for demos and tests, with injected faults."""

from __future__ import annotations

import signal
import threading
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils.translation import gettext as _

from orders.simulators.behaviour import LONGEST, MAIL, Behaviour
from orders.simulators.ledger import LedgerInUse
from sasproject import ports

try:
    from orders.simulators.server import Simulators
except ModuleNotFoundError as problem:  # requirements.txt, which a shop installs, has no mail server
    missing = problem.name
else:
    missing = None


class Command(BaseCommand):
    help = "Payment service, carrier and mail server in one process, with injected faults. Needs no database."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        ledger = Path(settings.STATE_DIR) / "simulators.jsonl"
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
        parser.add_argument("--port", type=ports.number, default=8010, help="HTTP: payment, carrier, control (8010; 0 = any)")
        parser.add_argument("--smtp-port", type=ports.number, default=8025, help="SMTP (8025; 0 = any)")
        parser.add_argument("--ledger", type=Path, default=ledger, help=f"file that keeps what they did ({ledger})")
        parser.add_argument(
            "--search-lag", type=_seconds, default=60.0, metavar="SECONDS", help="the payment search shows nothing younger (60)"
        )
        parser.add_argument(
            "--repeated-mail",
            choices=MAIL,
            default="deliver",
            help="what the mail server does with a Message-ID that comes again (deliver)",
        )
        parser.add_argument(
            "--payment-webhook",
            default="",
            metavar="URL",
            help="the address to which the payment service tells its events, signed with STRIPE_WEBHOOK_SECRET (none)",
        )
        parser.add_argument(
            "--carrier-webhook",
            default="",
            metavar="URL",
            help="the address to which the carrier tells its events, signed with CARRIER_WEBHOOK_SECRET (none)",
        )

    def handle(
        self,
        *,
        host: str,
        port: int,
        smtp_port: int,
        ledger: Path,
        search_lag: float,
        repeated_mail: str,
        payment_webhook: str,
        carrier_webhook: str,
        **options: Any,
    ) -> None:
        for option, url in (("--payment-webhook", payment_webhook), ("--carrier-webhook", carrier_webhook)):
            if url and not url.startswith(("http://", "https://")):
                raise CommandError(f"{option}: expected an http or https address")
        if missing is not None:
            raise CommandError(f"the simulators need the package {missing}: pip install -r requirements-embedded.txt")
        try:
            behaviour = Behaviour(search_lag=search_lag, repeated_mail=repeated_mail)
            webhook = (payment_webhook, settings.STRIPE_WEBHOOK_SECRET)
            of_parcels = (carrier_webhook, settings.CARRIER_WEBHOOK_SECRET)
            simulators = Simulators(
                host=host,
                port=port,
                smtp_port=smtp_port,
                ledger=ledger,
                behaviour=behaviour,
                webhook=webhook,
                carrier_webhook=of_parcels,
            )
        except (OSError, LedgerInUse) as problem:
            raise CommandError(str(problem)) from problem
        except ValueError as problem:
            raise CommandError(f"{ledger} is not a ledger: {problem}") from problem

        def leave(*_: Any) -> None:
            # A separate thread, because `shutdown` waits for the server loop, which runs in this thread.
            threading.Thread(target=simulators.stop).start()

        signal.signal(signal.SIGTERM, leave)
        signal.signal(signal.SIGINT, leave)
        self.stdout.write(
            _("Simulators ready: %(http)s and %(smtp)s, ledger %(ledger)s")
            % {"http": simulators.url, "smtp": simulators.smtp_url, "ledger": ledger}
        )
        self.stdout.flush()
        simulators.run()


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= LONGEST:
        raise ValueError(text)
    return seconds
