"""What processes measure and tell about their work: counters and histograms, spans of traces, the context of log lines.

May import: runtime and the rooms below.
Public: measures, spans, log_context, masking, middleware.
"""
