"""The catalogue of problems: each `code` that a refusal may have, with an example and what a client does about it.

An application adds its own with `add`. `docs/problems.md` has the same table, and a test compares it with the code.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any, NamedTuple


class Problem(NamedTuple):
    """One kind of problem. detail: an example. at: a pattern of the operations that have it; empty: all with its status."""

    status: int
    detail: str
    remedy: str
    at: str = ""


_VERBS = r"(resubmit|compensate|move|pay|resume|plan|pause)_order\w*|(skip|complete)_step|cancel_order"
_STEPS = r"resubmit_order|skip_step|complete_step"
_LOOK = "Read the order again, and decide anew."

PROBLEMS: dict[str, Problem] = {
    "invalid": Problem(400, "lines[0].quantity: Expected a whole number.", "Correct the fields that `errors` names."),
    "parse_error": Problem(400, "The body is not JSON: Expecting value: line 1 column 1 (char 0)", "Send JSON in UTF-8."),
    "unreadable_request": Problem(400, "The request cannot be read.", "Send the whole request, as HTTP asks for it."),
    "not_authenticated": Problem(401, "Authentication credentials were not provided.", "Send `Authorization: Token ...`."),
    "authentication_failed": Problem(401, "Invalid token.", "Use a token that is neither wrong nor expired nor revoked."),
    "permission_denied": Problem(403, "You may not do this.", "Use an account that may do this."),
    "not_permitted": Problem(403, "olga may not refund.", "Use an account with this right.", r"(?!list_|get_)\w+"),
    "token_reads_only": Problem(403, "This token may only read. Make one with another scope.", "Use a token whose scope is not `read`."),
    "proof_needed": Problem(
        403, "This moves money, and it was long ago that this session was proved.", "Sign out and in again, or use a token with this right."
    ),
    "second_factor_needed": Problem(403, "This session has not passed a second factor.", "Pass it in the browser, or use a token."),
    "not_found": Problem(404, "There is nothing here, or it is not yours to see.", "Check the id, the account, and the final slash."),
    "method_not_allowed": Problem(405, 'Method "PUT" not allowed.', "Use a method that `/api/docs/` lists for this path."),
    "not_acceptable": Problem(406, "Could not satisfy the request Accept header.", "Accept `application/json`."),
    "length_required": Problem(411, "Send a Content-Length with the request body.", "Send `Content-Length`, not a chunked body."),
    "precondition_failed": Problem(412, "The order has changed since you read it.", f"{_LOOK} It has the new `ETag`."),
    "too_large": Problem(413, "The request body is too large.", "Send less at once: 1 MiB, and 8 MiB for a batch."),
    "unsupported_media_type": Problem(415, 'Unsupported media type "text/plain" in request.', "Send `Content-Type: application/json`."),
    "throttled": Problem(429, "Request was throttled. Expected available in 12 seconds.", "Wait for `Retry-After` seconds."),
    "internal_error": Problem(
        500, "Something went wrong on our side.", "Repeat the request, with its idempotency key; tell us `Request-Id`."
    ),
    "unavailable": Problem(
        503, "This cannot be taken now; please try again in a moment.", "Repeat the request after `Retry-After` seconds."
    ),
    "refused": Problem(409, "The present state does not allow this.", _LOOK, r"\w+"),
    "changed_meanwhile": Problem(
        409, "You saw attempt 5 of charge-payment, it is at attempt 6 now.", _LOOK, rf"{_VERBS}|abandon_order|(stop|end|resume)_job"
    ),
    "archived": Problem(409, "The order ended long ago and is archived: nothing about it can be changed.", "Leave it as it is.", _VERBS),
    "dead_letter": Problem(409, "The submission could not be read.", "An operator requeues or discards the dead letter.", _VERBS),
    "not_taken_up": Problem(409, "The order is still waiting to be taken up.", "Wait a moment, and repeat the request.", _VERBS),
    "not_in_error": Problem(409, "The order is Processing: no step is in Error.", "There is nothing to do: the order goes on.", _STEPS),
    "not_cancellable": Problem(
        409, "The order is Processed and can no longer be cancelled.", "Ask for a return.", "(cancel|abandon)_order"
    ),
    "not_undoable": Problem(409, "The order goes on already.", _LOOK, "compensate_order"),
    "not_skippable": Problem(409, "charge-payment has to be undone.", "Resubmit or complete the step, or cancel.", "skip_step"),
    "not_completable": Problem(409, "Only a step that is in Error or waits can be completed.", _LOOK, "complete_step"),
    "step_required": Problem(409, "Several steps are in Error: a, b.", "Name one in `step`.", "skip_step|complete_step"),
    "unknown_step": Problem(
        409, "The order has no step x; its steps: a, b.", "Name one of its steps.", "resume_order_from_step|plan_order"
    ),
    "invalid_amendment": Problem(409, "The correction is not valid.", "Correct the fields of `amend`.", "resubmit_order"),
    "not_amendable": Problem(
        409, "total cannot be corrected here.", "Leave out the fields that the step does not allow.", "resubmit_order"
    ),
    "invalid_result": Problem(409, "The result has to be a JSON object.", "Send a smaller JSON object.", "complete_step"),
    "children_under_way": Problem(
        409, "3 of the runs that ship has started are under way.", "Cancel them, or resubmit the undo.", "complete_step"
    ),
    "not_movable": Problem(409, "The version does not agree with what has begun.", "Read the plan with `action=move`.", "move_order"),
    "not_resumable": Problem(
        409, "An effect cannot be undone.", "Read the plan with `action=resume`.", "resume_order_from_step|plan_order"
    ),
    "plan_changed": Problem(
        409, "This code may move nothing.", "Operators: give the changed definition a new version.", "move_order|plan_order"
    ),
    "unknown_version": Problem(409, "The workflow has no version 9.", "Name a version that exists.", "move_order|plan_order"),
    "unknown_action": Problem(409, "There is no action x.", "Name an action that exists.", "plan_order"),
    "signal_ended": Problem(409, "The order has ended.", "Nothing is left to do.", "signal_order|report_goods"),
    "signal_not_awaited": Problem(409, "Its workflow waits for no signal x.", "Check the signal's name.", "signal_order|report_goods"),
    "signal_key_reused": Problem(
        409, "The key was used with another payload.", "Take a new key for new content.", "signal_order|report_goods"
    ),
    "signal_too_many": Problem(409, "Too many signals are kept for this order.", "Send no more until the order goes on.", "signal_order"),
    "signal_payload": Problem(409, "The payload must be a JSON object.", "Send a smaller, flatter object.", "report_goods"),
    "signal_key": Problem(409, "A signal's key has 1 to 255 characters.", "Send a shorter key.", "report_goods"),
    "signal_batch": Problem(409, "At most 1000 signals are sent at once.", "Python and commands only: send fewer at once.", "-"),
    "until_has_passed": Problem(409, "until: that moment has passed already.", "Name a moment to come.", r"pause\w*"),
    "not_paused": Problem(409, "It is not paused any more, or never was.", "There is nothing to resume.", r"resume(_order)?"),
    "unknown_scope": Problem(409, "There is no scope x.", "Name one of the scopes.", "pause"),
    "unknown_name": Problem(409, "name: there is no agent x.", "Name what exists.", "pause"),
    "has_ended": Problem(409, "The order is Processed: nothing of it is left to pause.", "There is nothing to do.", "pause|pause_order"),
    "reason_required": Problem(409, "A reason is required.", "Say why in `reason`.", r"\w+_order|pause|skip_step|complete_step"),
    "unknown_incident": Problem(409, "There is no open incident 7.", "List the incidents again.", r"\w+_incident"),
    "bad_note": Problem(409, "A note has between 1 and 2000 characters.", "Send a shorter text.", "note_(order|incident)"),
    "unknown_dead_letter": Problem(409, "There is no dead letter 7.", "List the dead letters again.", r"\w+_dead_letter"),
    "too_many": Problem(
        409, "An account can have 20 webhooks.", "Remove one that you no longer need.", "register_webhook|issue_reply_token"
    ),
    "receiver_gone": Problem(409, "Its receiver is gone or switched off.", "Register the address again.", "redeliver|test_webhook"),
    "changes_not_possible": Problem(409, "changes: the verb cancel takes none.", "Leave `changes` out.", r"\w*job\w*"),
    "filter_required": Problem(409, "A job needs a filter.", "Name at least one filter.", r"\w*job\w*"),
    "not_approved": Problem(
        409, "Another operator has to approve request 17 first.", "Have the request approved, or start another job.", r"resume_job"
    ),
    "no_orders": Problem(409, "No order fits this filter.", "Check the filter with `dry_run`.", r"\w*job\w*"),
    "job_key_reused": Problem(409, "Another job was started under this key.", "Take a new key for another job.", "start_job"),
    "too_many_orders": Problem(409, "More than 100000 orders fit this filter.", "Narrow the filter.", r"\w*job\w*"),
    "unknown_job": Problem(409, "There is no job 7.", "List the jobs again.", r"\w*job\w*"),
    "same_operator": Problem(409, "Another operator has to decide.", "Let another operator approve or refuse.", r"\w*approval\w*"),
    "unknown_approval": Problem(409, "There is no approval 7.", "List the approvals again.", r"\w*approval\w*"),
    "too_many_notes": Problem(409, "The order has 500 notes. It takes no more.", "Leave it at the notes that it has.", "note_order"),
    "unknown_operator": Problem(409, "Olga is no operator.", "Name an account that may operate.", "assign_(order|incident)"),
    "unknown_verb": Problem(409, "There is no verb x.", "Use one of the verbs of jobs.", r"\w*job\w*"),
    "key": Problem(409, "A key has 1 to 255 characters that can be stored.", "Python only: give a shorter key.", "-"),
    "payload": Problem(409, "The payload is no JSON object.", "Python only: give a mapping.", "-"),
    "under_way": Problem(409, "payment is being compared already.", "Commands only: wait for the other comparison.", "-"),
    "wrong_verb": Problem(409, "refund does not settle finding 7.", "Commands only: use one of the finding's verbs.", "-"),
    "unknown_finding": Problem(409, "There is no finding 7.", "Commands only: list the findings again.", "-"),
}


def add(more: dict[str, Problem]) -> None:
    """Add an application's problems."""
    PROBLEMS.update(more)


def example(code: str) -> dict[str, Any]:
    """The problem document of this code, as an example of the schema."""
    known = PROBLEMS[code]
    title = HTTPStatus(known.status).phrase
    document = {"type": f"urn:problem:{code}", "title": title, "status": known.status, "detail": known.detail, "code": code}
    return {"summary": known.remedy.replace("`", ""), "value": document}


def of(status: str, operation: str) -> list[str]:
    """The codes of an operation's refusals with this status."""
    return [code for code, known in PROBLEMS.items() if str(known.status) == status and (not known.at or re.fullmatch(known.at, operation))]


def table() -> str:
    """The catalogue as the table of `docs/problems.md`."""
    rows = sorted((known.status, code, known) for code, known in PROBLEMS.items())
    lines = [f"| `{code}` | {status} | {known.detail} | {known.remedy} |" for status, code, known in rows]
    return "\n".join(["| `code` | Status | Example of `detail` | What to do |", "|---|---|---|---|", *lines])


def with_examples(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """A hook of drf-spectacular: give each refusal in the schema examples of its codes."""
    result.setdefault("components", {})["examples"] = {code: example(code) for code in sorted(PROBLEMS)}
    for operations in result["paths"].values():
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                for kind, content in answer.get("content", {}).items():
                    if kind == "application/problem+json":
                        content["examples"] = {
                            code: {"$ref": f"#/components/examples/{code}"} for code in of(status, operation["operationId"])
                        }
    return result
