"""Invoices and credit notes: numbers without gaps, VAT per line, as PDF and in the journal. See `docs/invoices.md`."""
