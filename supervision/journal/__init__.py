"""The journal: events under a key, appended to files by one writer per key, each line on disk before it is acknowledged.

May import: runtime, postgres; and the definitions at the top of `supervision`.
Public: csv_format, entries, writer, verify.
"""
