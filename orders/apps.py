"""The shop as a Django app."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class OrdersConfig(AppConfig):
    """Catalogue, cart, checkout and the order workflow's agents."""

    name = "orders"
    verbose_name = _("Shop")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import the modules that register with the engine: caches, the intake queue's reader, reconciliation sources, incidents, worth,
        and what deletes rows. Say which of the shop's variables lead to a database."""
        from orders import intake_queue, stakes, worth  # noqa: F401
        from orders.accounts import mails  # noqa: F401
        from orders.agents import payment_news, rates  # noqa: F401
        from orders.documents import crediting, issuing  # noqa: F401
        from orders.edits import changing  # noqa: F401
        from orders.factors import library, proofs, telling  # noqa: F401
        from orders.identity import backend, reset_mail  # noqa: F401
        from orders.parcels import trouble  # noqa: F401
        from orders.privacy import closing  # noqa: F401
        from orders.reconciliation import carrier, failed_refunds, payment  # noqa: F401
        from orders.records import expired  # noqa: F401
        from orders.returns import correcting, payouts  # noqa: F401
        from supervision.postgres import advice

        advice.use("start ./run demo, or set DATABASE_URL=postgres://user:password@host:port/database", direct="DATABASE_DIRECT_URL")
