"""The report of a run: text for the console, and one JSON file."""

from __future__ import annotations

import json
import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos.checker import FINAL, Violation
from chaos.evidence import Evidence

SHOWN = 10  # violations per kind on the console; the file has all
LEAVES = ("Processed", "Cancelled", "Error", "Compensating")


def recovery(evidence: Evidence) -> dict[str, list[float]]:
    """Recovery times by kind of fault, one for each fault: the seconds from its end until the last order that was then in
    Processing has left Processing. Other faults may last meanwhile, so these are upper bounds.
    """
    left: dict[int, float] = {}
    created = {run.id: run.created_at.timestamp() for run in evidence.rows["runs"]}
    for event in evidence.rows["events"]:
        if event.position is None and event.to_state in LEAVES:
            left.setdefault(event.run_id, event.at.timestamp())
    by_creation = sorted((created[run_id], left.get(run_id, float("inf"))) for run_id in created)
    times = [one for one, _ in by_creation]
    found: dict[str, list[float]] = defaultdict(list)
    for fact in evidence.journal.of("nemesis", "end"):
        until = bisect_left(times, fact["t"])
        affected = [at for _, at in by_creation[max(0, until - 2000) : until] if at > fact["t"]]
        if affected and max(affected) != float("inf"):
            found[_kind(fact)].append(max(affected) - fact["t"])
    return found


def _kind(fact: Mapping[str, Any]) -> str:
    return f"{fact['kind']} {fact['targets'][0].partition('.')[0]}" if fact["kind"] in ("kill", "freeze", "service") else fact["kind"]


def figures(evidence: Evidence, found: Mapping[str, Sequence[Violation]], **more: Any) -> dict[str, Any]:
    """All numbers of a run."""
    runs, journal = evidence.rows["runs"], evidence.journal
    spans = sorted((run.finished_at - run.created_at).total_seconds() for run in runs if run.finished_at)
    ends = [run.finished_at.timestamp() for run in runs if run.finished_at]
    begins = [run.created_at.timestamp() for run in runs]
    recovered = recovery(evidence)
    every = sorted(time for times in recovered.values() for time in times)
    return {
        **more,
        "orders": len(runs),
        "states": dict(Counter(run.process_state for run in runs)),
        "submits": dict(Counter(fact["what"] for fact in journal.of("client"))),
        "faults": dict(Counter(_kind(fact) for fact in journal.of("nemesis", "begin"))),
        "faults_missed": len(journal.of("nemesis", "missed")),
        "ended_by_themselves": dict(Counter(fact["name"] for fact in journal.of("nemesis", "ended-by-itself"))),
        "operator": dict(Counter(f"{fact['what']} {fact.get('status')}" for fact in journal.of("bot"))),
        "alerts": dict(Counter(alert.kind for alert in evidence.rows["alerts"])),
        "stray_replies": len(evidence.rows["strays"]),
        "remote_calls": evidence.calls,
        "remote_effects": len(evidence.effects),
        "mails_repeated": sum(row.operation == "repeat" for row in evidence.rows["operations"]),
        "retried_attempts": sum(step.attempt - 1 for step in evidence.rows["steps"] if step.attempt > 1),
        "end_to_end_s": {name: _quantile(spans, q) for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))},
        "orders_per_s": round(len(ends) / (max(ends) - min(begins)), 2) if ends else 0,
        "recovery_s": {"faults": len(every), "p50": _quantile(every, 0.5), "p95": _quantile(every, 0.95), "max": _quantile(every, 1.0)},
        "recovery_by_fault_s": {
            kind: {"n": len(times), "p50": round(statistics.median(times), 1), "max": round(max(times), 1)}
            for kind, times in sorted(recovered.items())
        },
        "violations": {kind: len(those) for kind, those in found.items()},
    }


def _quantile(values: Sequence[float], q: float) -> float | None:
    return round(values[min(len(values) - 1, int(q * len(values)))], 2) if values else None


def text(numbers: Mapping[str, Any], found: Mapping[str, Sequence[Violation]]) -> str:
    """The report for the console."""
    lines = []
    for name, value in numbers.items():
        if name in ("violations", "recovery_by_fault_s"):
            continue
        shown = ", ".join(f"{key} {count}" for key, count in value.items()) if isinstance(value, dict) else value
        lines.append(f"{name.replace('_', ' '):22} {shown}")
    lines.append("\nseconds from the end of a fault until the last affected order left Processing (n, median, longest)")
    lines += [f"  {kind:24} {row['n']:4} {row['p50']:7} {row['max']:7}" for kind, row in numbers["recovery_by_fault_s"].items()]
    lines.append("\nchecks")
    for kind, those in found.items():
        lines.append(f"  {'FAILED' if those else 'ok':7} {kind}" + (f": {len(those)}" if those else ""))
        lines += [f"          {one.order or '-'}: {one.detail}"[:400] for one in those[:SHOWN]]
    return "\n".join(lines)


def write(directory: Path, numbers: Mapping[str, Any], found: Mapping[str, Sequence[Violation]]) -> None:
    """Write the report's JSON file."""
    every = [vars(one) for those in found.values() for one in those]
    (directory / "report.json").write_text(json.dumps({**numbers, "found": every}, indent=1, default=str) + "\n")


__all__ = ["FINAL", "figures", "recovery", "text", "write"]
