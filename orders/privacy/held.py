"""What the shop's tables, those of the libraries, and files hold of people. `docs/privacy.md` shows it with the engine's part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from supervision.privacy import held as engine
from supervision.privacy.held import CODE, KEY, SHOP, Held

ACCOUNT = "until the account is closed"
PERSONAL: Mapping[str, tuple[Held, ...]] = {
    "orders_order": (
        Held("email customer", "the mail address and the name", "RECORD_DAYS", "the address becomes a pseudonym, the name is emptied"),
    ),
    "orders_return": (Held("reason asked_by", "the customer's reason", "RECORD_DAYS", "emptied; words taken out"),),
    "orders_returncorrection": (Held("reason asked_by", "operators' reasons", "RECORD_DAYS", "words taken out"),),
    "orders_refund": (Held("reason asked_by", "operators' reasons", "RECORD_DAYS", "words taken out"),),
    "orders_mailagain": (Held("email reason asked_by", "where a mail was sent again", "RECORD_DAYS", "the address becomes a pseudonym"),),
    "orders_paymentadjustment": (Held("reason", "what the payment service says", "RECORD_DAYS", "words taken out"),),
    "orders_paymentevent": (Held("outcome", "what came of a webhook", "30 days", "words taken out"),),
    "orders_document": (
        Held(
            "body",
            "name and address on invoices and credit notes",
            "DOCUMENT_YEARS after the year of issue",
            "**kept**: the law asks for it",
        ),
    ),
    "orders_savedaddress": (Held("name line1 line2 postal_code city country_area country", "the address book", ACCOUNT, "deleted"),),
    "orders_verifiedemail": (Held("address", "the confirmed mail address", ACCOUNT, "deleted"),),
    "orders_tokengrant": (Held("name", "the owner's name for a token", ACCOUNT, "deleted"),),
    "orders_erasure": (Held("subject reason asked_by", "the person who is erased", "until it is done", "emptied by the last step"),),
    "auth_user": (Held("username first_name last_name email password", "the account", ACCOUNT, "replaced by a pseudonym"),),
    "mfa_authenticator": (Held("type data", "the account's second factors", ACCOUNT, "deleted"),),
    "socialaccount_socialaccount": (
        Held("provider uid extra_data", "who the account is at the organisation's sign-in", ACCOUNT, "deleted"),
    ),
    "django_session": (Held("session_data", "who is signed in, the cart, a sign-up that is not finished", "14 days", "deleted"),),
    "django_admin_log": (
        Held("object_repr change_message", "what operators did, with reasons", "RECORD_DAYS", "the message is blanked whole"),
    ),
}
EMPTY = "a table of a library in which we write no row"
PLAIN: Mapping[str, str] = {
    EMPTY: """
        account_emailaddress: email; account_emailconfirmation: key; socialaccount_socialtoken: token token_secret;
        socialaccount_socialapp: provider provider_id name client_id secret key settings""",
    CODE: """
        orders_order: currency; orders_return: currency; orders_refund: currency; orders_returncorrection: lines;
        orders_parcel: state trouble; orders_parcelevent: state outcome; orders_paymentadjustment: kind currency status;
        orders_paymentevent: kind; orders_document: kind series currency; orders_documentcounter: series;
        orders_tokengrant: scope; orders_erasure: state step counts; auth_permission: name codename;
        django_content_type: app_label model;
        django_celery_beat_crontabschedule: minute hour day_of_month month_of_year day_of_week timezone;
        django_celery_beat_intervalschedule: period; django_celery_beat_solarschedule: event""",
    KEY: """
        orders_order: public_id number; orders_return: public_id order_key number; orders_returnable: order_key;
        orders_returncorrection: return_key key digest refund; orders_refund: public_id order_key number replaces;
        orders_mailagain: public_id order_key; orders_parcel: key order_key shipment tracking_number; orders_parcelevent: event_id key;
        orders_parcelwatch: order_key; orders_paymentadjustment: external_id intent order_key;
        orders_paymentevent: event_id intent order_key; orders_tokengrant: token_id;
        orders_document: order_key return_key; orders_stockreservation: idempotency_key order_key; orders_erasure: digests place;
        knox_authtoken: digest token_key; django_session: session_key; django_admin_log: object_id""",
    SHOP: """
        orders_product: sku name description currency picture warehouse; orders_category: slug name; orders_orderline: sku name;
        orders_returnline: sku name; orders_returnable: sku; orders_stockreservation: sku; auth_group: name;
        django_celery_beat_periodictask: name task args kwargs queue exchange routing_key headers description""",
}
# What is no column of a model.
ELSEWHERE: tuple[tuple[str, str, str, str], ...] = (
    ("`orders_requestcount`", "counts of mails to an address", "an hour", "deleted"),
    ("`sas_cache`", "pages of products; no personal data", "as each entry says", "nothing to erase"),
    ("files in `JOURNAL_DIR`", "orders' keys and amounts; no personal data", "kept as books", "nothing to erase"),
    ("files of versions before this table", "the customer's name in `order.received`", "kept as books", "see below"),
    (
        "logs of the processes",
        "public ids and errors; no names and addresses of ours",
        "as the system that collects them keeps them",
        "see below",
    ),
    (
        "the broker",
        "ids; in the intake queue requests that were not read yet",
        "until they are read",
        "found as orders, or as dead letters",
    ),
    ("backups", "everything of the moment", "as you keep them", "repeated after a restore: see below"),
    ("payment service, carrier, mail server", "what a service needs for its part", "by its own rules", "ask the service"),
)


def columns() -> list[str]:
    """All columns that are declared, as `table.column`."""
    return [*engine.columns(engine.PERSONAL, engine.PLAIN), *engine.columns(PERSONAL, PLAIN)]


def personal() -> set[str]:
    """The columns that may hold personal data, as `table.column`."""
    return {*engine.columns(engine.PERSONAL, {}), *engine.columns(PERSONAL, {})}


def table() -> Iterator[str]:
    """The lines of the table in docs/privacy.md."""
    yield "| Where | What | Ends by itself | Erasure |"
    yield "|---|---|---|---|"
    for name, helds in sorted({**engine.PERSONAL, **PERSONAL}.items()):
        for held in helds:
            where = f"`{name}`: " + ", ".join(f"`{column}`" for column in held.columns.split())
            yield f"| {where} | {held.what} | {held.until} | {held.erasure} |"
    for row in ELSEWHERE:
        yield f"| {' | '.join(row)} |"
