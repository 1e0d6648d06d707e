"""Stand-ins for the payment service, the carrier and the mail server: one process with one durable memory.

For demos and tests only. The package knows nothing of the shop, of the engine or of any database; it is reached over
HTTP and SMTP like the real services, and breaks on command like them (`faults`). What it did stands in the `ledger`.
"""
