"""Personal data: what is held where, the export of one person's data, and its erasure."""
