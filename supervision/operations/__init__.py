"""The verbs of operators and customers, audited in the transaction that acts; retention and the doctor's probes.

May import: approvals, intake, governance, outbox, deadletters, store and the rooms below; and the definitions at the top of `supervision`.
Public: operator_verbs, completing, ending, resuming, moving, acting, previews, audit_log, pauses, resource_limits, archive,
requeue, doctor.
"""
