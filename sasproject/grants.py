"""What each database role may do with each table. `manage.py database_roles` and `migrate` grant it; a test compares it with the tables.

A table without a row here is readable and writable by no role but its owner. No role but the owner may change the schema, or
truncate, except what a readiness probe writes.
"""

from __future__ import annotations

from typing import NamedTuple

VERBS = {"s": "SELECT", "i": "INSERT", "u": "UPDATE", "d": "DELETE", "t": "TRUNCATE"}


class Grant(NamedTuple):
    """The verbs of `web`, `worker` and `read` on one table, as letters of VERBS. hidden: columns that `read` does not see.

    worker_columns: all that `worker` may update, where its verbs have no UPDATE of the table.
    """

    web: str
    worker: str
    read: str = "s"
    hidden: tuple[str, ...] = ()
    worker_columns: tuple[str, ...] = ()


_ALL = "siud"
_GRANTS = (
    # The history: written once. The worker archives it, and deletes old entries of the operators' log; triggers watch both.
    (Grant("si", "sid"), "supervision_stepevent"),
    # The erasure of a person blanks its messages; a trigger lets nothing else change.
    (Grant("si", "siud"), "django_admin_log"),
    # The chain over the history: made and ended by the worker, append-only by triggers.
    (Grant("s", "sid"), "supervision_historybatch supervision_historylink"),
    # To lock a row before it is deleted takes the right to change it.
    (Grant("s", "siud"), "supervision_archivedrun"),
    # Orders on their way: accepted, cancelled and corrected by web, performed by the worker, which alone removes what is over.
    (
        Grant("siu", _ALL),
        """
        supervision_run supervision_strayreply supervision_alert supervision_effect supervision_signal supervision_child
        supervision_submission supervision_notification supervision_approval supervision_finding supervision_incident
        supervision_incidentnote supervision_deadletter supervision_job supervision_jobresult supervision_journalentry
        orders_order orders_parcel orders_paymentadjustment orders_refund orders_mailagain orders_return orders_returnline
        orders_returnable orders_returncorrection orders_stockreservation orders_document orders_documentcounter""",
    ),
    # What the worker's processes keep about themselves and their work.
    (
        Grant("s", _ALL),
        """
        supervision_journalfile supervision_writerlease supervision_heartbeat supervision_pulse supervision_leaderlease
        supervision_scheduleprogress""",
    ),
    # Rows that web removes, too: steps that are begun again, lines that are taken off an order, channels' messages, tests of webhooks.
    (
        Grant(_ALL, _ALL),
        """
        supervision_stepstate supervision_slot supervision_delivery supervision_telling supervision_exchange supervision_apirequest
        supervision_runnote supervision_assignee supervision_pause supervision_closure supervision_receipt supervision_cachedresult
        supervision_savedview supervision_resource supervision_resourceroute supervision_epoch supervision_workflowversion
        supervision_reconciliation supervision_audience
        orders_orderline orders_parcelcursor orders_parcelevent orders_parcelwatch orders_paymentevent orders_product
        django_celery_beat_clockedschedule django_celery_beat_crontabschedule django_celery_beat_intervalschedule
        django_celery_beat_periodictask django_celery_beat_periodictasks django_celery_beat_solarschedule""",
    ),
    # It names persons while it is worked at.
    (Grant(_ALL, _ALL, hidden=("subject",)), "orders_erasure"),
    # Written by a readiness probe, which makes the second table's file anew.
    (Grant("siu", ""), "supervision_writeprobe"),
    (Grant("sit", "", ""), "supervision_writeprobepage"),
    # Every process adds its counts; the supervisor adds the minutes up.
    (Grant("siu", "siud"), "supervision_metric"),
    (Grant("s", "siu"), "supervision_pulsetotal"),
    # The worker reads the secrets, because it sends; it changes the results of tries, but no address. `read` sees no secrets.
    (
        Grant(_ALL, "s", hidden=("secret",), worker_columns=("failures", "failing_since", "retry_at")),
        "supervision_webhookendpoint",
    ),
    (
        Grant(
            _ALL,
            "s",
            hidden=("address", "secret"),
            worker_columns=("failures", "failing_since", "retry_at", "last_error", "sent_at"),
        ),
        "supervision_channel",
    ),
    (Grant(_ALL, "s", hidden=("token_hash",)), "supervision_replytoken"),
    # Shared by all processes. `read` has no use for them, and they hold data of single visitors.
    (Grant(_ALL, _ALL, ""), "sas_cache orders_requestcount"),
    # The catalogue's shelves, accounts and their rights: changed in the shop and the console alone.
    (
        Grant(_ALL, "s"),
        """
        orders_category orders_savedaddress orders_verifiedemail auth_group auth_group_permissions auth_user_groups
        auth_user_user_permissions""",
    ),
    (Grant(_ALL, "s", hidden=("password",)), "auth_user"),
    (Grant(_ALL, "", ""), "knox_authtoken orders_tokengrant"),
    # Second factors and sign-in by OpenID Connect: web alone asks for them.
    (
        Grant(_ALL, "", ""),
        """
        mfa_authenticator account_emailaddress account_emailconfirmation socialaccount_socialaccount socialaccount_socialapp
        socialaccount_socialtoken""",
    ),
    (Grant(_ALL, "sud", ""), "django_session"),
    # What `migrate` writes.
    (Grant("s", "s"), "django_migrations django_content_type auth_permission"),
)
TABLES = {table: grant for grant, tables in _GRANTS for table in tables.split()}
