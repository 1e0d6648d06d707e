"""The table of the request log (`supervision.requestlog`)."""
