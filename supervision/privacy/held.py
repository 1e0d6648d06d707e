"""What the engine's tables hold of people: each column of text, JSON or bytes is named here once. A test compares it with the models.

An application declares its own tables in the same way. `docs/privacy.md` shows both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

ARCHIVED = "moves into the archive with the run, before anything is erased"


class Held(NamedTuple):
    """Columns that hold, or may hold, personal data. until: the setting, or the event, that ends it without an erasure."""

    columns: str  # of one table, separated by spaces
    what: str
    until: str
    erasure: str


# Reasons why a column holds no customer's data.
CODE = "a word that the program chose"
KEY = "an id, a key or a hash that names no one by itself"
MACHINE = "a process, a host, a queue or a service"
SHOP = "what the people of the shop set up"

PERSONAL: Mapping[str, tuple[Held, ...]] = {
    "supervision_submission": (
        Held("payload", "the exact request: mail, name, address", "ARCHIVE_DAYS; with a client's key KEY_DAYS", "emptied"),
        Held("client_key", "a client's own key of the order", "KEY_DAYS", "a keyed digest stays where it names the person"),
        Held(
            "session_key cancelled_by cancel_reason",
            "what a client wrote",
            "the same",
            "the customer's own reason emptied; words taken out",
        ),
    ),
    "supervision_run": (Held("payload session_key", "mail, name and address that the agents need", "ARCHIVE_DAYS", ARCHIVED),),
    "supervision_stepstate": (Held("result checkpoint last_error", "answers of services", "ARCHIVE_DAYS", ARCHIVED),),
    "supervision_stepevent": (Held("actor why", "who did what, with reasons", "ARCHIVE_DAYS", ARCHIVED),),
    "supervision_alert": (Held("message acknowledged_by", "errors of services", "ARCHIVE_DAYS", ARCHIVED),),
    "supervision_effect": (Held("actor", "who acted", "ARCHIVE_DAYS", ARCHIVED),),
    "supervision_signal": (Held("payload sent_by reason", "facts from outside", "ARCHIVE_DAYS", f"{ARCHIVED}; words taken out"),),
    "supervision_child": (Held("payload session_key", "what a child run begins with", "ARCHIVE_DAYS", ARCHIVED),),
    "supervision_strayreply": (Held("detail actor", "late answers of services", "ARCHIVE_DAYS", "words taken out"),),
    "supervision_archivedrun": (
        Held(
            "body", "all of the above", "RECORD_DAYS", "mail, name and address emptied, the customer's own words, and all words taken out"
        ),
    ),
    "supervision_notification": (
        Held("payload last_error", "mails to customers, to be sent", "ARCHIVE_DAYS after they were sent", "words taken out"),
    ),
    "supervision_delivery": (Held("body last_error log", "messages to webhooks and queues", "ARCHIVE_DAYS", "words taken out"),),
    "supervision_telling": (Held("last_error log", "answers of operators' channels", "ARCHIVE_DAYS", "words taken out"),),
    "supervision_exchange": (Held("asked answered", "calls to services, masked", "EXCHANGE_DAYS", "deleted"),),
    "supervision_deadletter": (
        Held("body headers delivery", "the exact bytes of a message", "DEAD_LETTER_DAYS after it was settled", "emptied; a digest stays"),
        Held("reason resolution", "why it could not be read", "RECORD_DAYS", "words taken out"),
    ),
    "supervision_runnote": (Held("text author", "operators' notes on an order", "RECORD_DAYS", "deleted"),),
    "supervision_finding": (
        Held("detail last_error settled_by reason outcome", "what a service's list says", "RECORD_DAYS", "words taken out"),
    ),
    "supervision_approval": (
        Held("arguments reason asked_by decided_by decision_reason outcome", "requests of operators", "RECORD_DAYS", "words taken out"),
    ),
    "supervision_incident": (
        Held("cause title acknowledged_by acknowledge_reason owner", "errors of services", "RECORD_DAYS", "words taken out"),
    ),
    "supervision_incidentnote": (Held("author text", "operators' notes", "RECORD_DAYS", "words taken out"),),
    "supervision_pause": (Held("reason paused_by lifted_by lift_reason", "operators' reasons", "RECORD_DAYS", "words taken out"),),
    "supervision_job": (
        Held("filter changes reason started_by stopped_by stop_reason", "what operators searched for", "JOB_KEEP_DAYS", "words taken out"),
    ),
    "supervision_jobresult": (Held("message", "what became of an order", "JOB_KEEP_DAYS", "words taken out"),),
    "supervision_savedview": (Held("name query", "what operators search for", "until its owner removes it", "words taken out"),),
    "supervision_journalentry": (Held("body error", "the customer's name in entries of earlier versions", "JOURNAL_KEEP_DAYS", "emptied"),),
    "supervision_channel": (Held("last_error", "an error of a service", "until the next success", "words taken out"),),
    "supervision_resource": (Held("last_error suspects", "an error of a service", "until the next success", "words taken out"),),
}

# table: column column; ...
PLAIN: Mapping[str, str] = {
    CODE: """
        supervision_submission: workflow; supervision_run: process_state workflow direction;
        supervision_stepstate: process_state effect direction name agent awaits after; supervision_stepevent: direction from_state to_state;
        supervision_alert: direction kind step code severity cause; supervision_effect: direction operation currency outcome;
        supervision_signal: name taken_by; supervision_child: step state workflow; supervision_strayreply: direction outcome;
        supervision_archivedrun: workflow process_state; supervision_notification: kind; supervision_delivery: event;
        supervision_telling: event severity; supervision_exchange: direction call; supervision_deadletter: source content_type;
        supervision_finding: kind currency verbs verb; supervision_approval: verb step stake state;
        supervision_incident: kind step code severity told_severity held; supervision_pause: scope;
        supervision_job: verb state held moved; supervision_jobresult: step outcome process_state code; supervision_savedview: of;
        supervision_journalentry: event_type; supervision_journalfile: event_type columns;
        supervision_apirequest: method path code signed_in key; supervision_pulse: classes counts incidents;
        supervision_workflowversion: name fingerprint definition; supervision_scheduleprogress: name last_error;
        supervision_cachedresult: cache key value last_error; supervision_epoch: store; supervision_slot: direction;
        supervision_resource: breaker_state last_code successes probing; supervision_writeprobepage: filler;
        supervision_historylink: kind; supervision_metric: name labels buckets; supervision_pulsetotal: counts""",
    KEY: """
        supervision_submission: public_id client request_hash; supervision_run: key partition reply_to session_client parent_key;
        supervision_stepstate: idempotency_key; supervision_effect: key external_id; supervision_signal: run_key key;
        supervision_child: key parent_key root_key; supervision_archivedrun: key reference;
        supervision_delivery: public_id client message_id; supervision_deadletter: public_id digest; supervision_runnote: run_key;
        supervision_assignee: run_key; supervision_finding: order_key external_id key;
        supervision_approval: subject order_key plan_version identity; supervision_job: key; supervision_jobresult: key;
        supervision_journalentry: key event_id; supervision_journalfile: key path; supervision_writerlease: key;
        supervision_apirequest: request_id order_key; supervision_receipt: digest; supervision_replytoken: token_hash client queue;
        supervision_historybatch: previous head; supervision_historylink: digest marks;
        supervision_epoch: system_identifier; supervision_webhookendpoint: public_id client""",
    MACHINE: """
        supervision_submission: reader; supervision_stepstate: locked_by resource; supervision_effect: service;
        supervision_exchange: service; supervision_finding: service; supervision_incident: resource; supervision_job: leased_by;
        supervision_journalfile: host; supervision_writerlease: holder last_error; supervision_receipt: reader;
        supervision_closure: resource; supervision_heartbeat: incarnation role detail; supervision_leaderlease: name holder;
        supervision_reconciliation: service last_error; supervision_slot: resource holder; supervision_resourceroute: service resource""",
    SHOP: """
        supervision_assignee: owner; supervision_channel: name kind address secret least kinds; supervision_epoch: reason by;
        supervision_job: account; supervision_pause: name; supervision_resource: name service settings;
        supervision_resourceroute: partition; supervision_webhookendpoint: url secret events""",
}


def columns(personal: Mapping[str, tuple[Held, ...]], plain: Mapping[str, str]) -> list[str]:
    """All columns that a declaration names, as `table.column`."""
    named = [f"{table}.{column}" for table, helds in personal.items() for held in helds for column in held.columns.split()]
    for text in plain.values():
        for part in text.split(";"):
            table, _colon, rest = part.partition(":")
            named += [f"{table.strip()}.{column}" for column in rest.split()]
    return named
