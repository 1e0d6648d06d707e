"""Draws results as bars in SVG. It needs no library, and draws the same picture on every machine."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from benchmarks.results import Results, Spread

WIDTH, LABEL, FIGURE = 900, 300, 130
BAR, GAP, HEAD = 18, 8, 44
OURS, THEIRS, LOW = "#0f766e", "#94a3b8", "#334155"


@dataclass(frozen=True)
class Bar:
    """One system's figure."""

    title: str
    value: Spread
    is_ours: bool


def draw(results: Results) -> str:
    """The whole picture."""
    panels = [
        ("Orders a second, four no-op steps, one commit per order (more is better)", _bars(results, "throughput", "orders_per_second")),
        ("Orders a second, four steps of 20 ms (more is better)", _bars(results, "slow", "orders_per_second")),
        ("CPU per order over all processes, us (less is better)", _bars(results, "throughput", "cpu_us_all")),
        ("Median latency at 10 orders/s, ms (less is better)", _bars(results, "latency", "p50_ms")),
    ]
    top, parts = 0, []
    for title, bars in panels:
        if bars:
            parts.append(f'<g transform="translate(0 {top})">{_panel(title, bars)}</g>')
            top += HEAD + len(bars) * (BAR + GAP) + GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {max(top, 1)}" width="{WIDTH}" height="{max(top, 1)}" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="#0f172a">\n'
        f'<rect width="{WIDTH}" height="{max(top, 1)}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _bars(results: Results, row: str, key: str) -> list[Bar]:
    found = []
    for entry in results.entries(row):
        value = results.spread(row, entry, key)
        if value is not None and value.median > 0:
            found.append(Bar(results.titles.get(f"{row}/{entry}", entry), value, entry.startswith("ours")))
    return found


def _panel(title: str, bars: list[Bar]) -> str:
    room = WIDTH - LABEL - FIGURE
    scale = room / max(bar.value.high for bar in bars)
    lines = [f'<text x="12" y="28" font-size="15" font-weight="600">{escape(title)}</text>']
    for number, bar in enumerate(bars):
        y = HEAD + number * (BAR + GAP)
        middle = y + BAR / 2
        width = max(1.0, bar.value.median * scale)
        end = max(width, bar.value.high * scale)
        lines.append(f'<text x="{LABEL - 8}" y="{middle + 4.5:.1f}" text-anchor="end">{escape(bar.title)}</text>')
        lines.append(f'<rect x="{LABEL}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" fill="{OURS if bar.is_ours else THEIRS}"/>')
        if bar.value.count > 1:
            low, high = LABEL + bar.value.low * scale, LABEL + bar.value.high * scale
            lines.append(
                f'<path d="M{low:.1f} {middle:.1f}H{high:.1f}M{low:.1f} {middle - 4:.1f}v8M{high:.1f} {middle - 4:.1f}v8" stroke="{LOW}"/>'
            )
        lines.append(f'<text x="{LABEL + end + 6:.1f}" y="{middle + 4.5:.1f}">{_figure(bar.value.median)}</text>')
    return "\n".join(lines)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"
