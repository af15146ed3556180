"""The table, for people, for the docs and for programs."""
import statistics

HEAD = ("work", "ours", "peers", "limit", "ratio", "goal", "met")


def number(value):
    """Three digits that count; whole numbers above a hundred."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def cells(row):
    ours = f"{number(row.ours)} {row.unit}"
    if row.text:
        ours = row.text
    elif row.most > row.least:
        ours += f" ({number(row.least)}–{number(row.most)})"
    return (row.work, ours,
            ", ".join(f"{name} {number(value)}" for name, value in row.peers.items()),
            f"{number(row.limit)} {row.limit_name}" if row.limit is not None else "",
            f"{row.ratio:.2f}" if row.ratio is not None else "",
            ", ".join(map(str, row.goals)),
            {True: "yes", False: "NO", None: ""}[row.met])


def text(rows, markdown=False):
    """The table; empty if it has no rows."""
    if not rows:
        return ""
    table = [HEAD, *(cells(row) for row in rows)]
    if markdown:
        lines = ["| " + " | ".join(line) + " |" for line in table]
        return "\n".join([lines[0], "|" + "---|" * len(HEAD), *lines[1:]])
    widths = [max(len(line[i]) for line in table) for i in range(len(HEAD))]
    lines, group = [], None
    for row, line in zip([None, *rows], table):
        if row is not None and row.group != group:
            group = row.group
            lines.append("-" * (sum(widths) + 2 * len(widths)))
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    return "\n".join(lines)


LIMITS = (("memcpy_gb_per_s", "memcpy", "GB/s", 1), ("add_gb_per_s", "a += b", "GB/s", 1),
          ("ring_gb_per_s", "ring between two processes", "GB/s", 1),
          ("ring_sum_gb_per_s", "ring with check and sum", "GB/s", 1),
          ("ring_push_gb_per_s", "the same, 16 MB at a time: checked whole first, answered after", "GB/s", 1),
          ("unix_gb_per_s", "Unix stream", "GB/s", 1),
          ("loopback_gb_per_s", "loopback TCP", "GB/s", 1),
          ("loopback_push_gb_per_s", "the same, 16 MB at a time: checked whole, summed, answered", "GB/s", 1),
          ("ring_ping_us", "4 KB there and an answer, ring", "µs", 1),
          ("loopback_ping_us", "4 KB there and an answer, TCP", "µs", 1),
          ("round_trip_us", "64 bytes there and back, TCP", "µs", 1),
          ("gather_rows_per_s", "random rows of 64 bytes, gather", "M/s", 1e-6),
          ("random_add_rows_per_s", "random rows of 64 bytes, scatter-add", "M/s", 1e-6),
          ("sparse_push_sgd_keys_per_s", "table in process, push, SGD", "M keys/s", 1e-6),
          ("sparse_push_adagrad_keys_per_s", "the same, Adagrad", "M keys/s", 1e-6),
          ("sparse_push_adam_keys_per_s", "the same, Adam", "M keys/s", 1e-6),
          ("sparse_pull_sgd_keys_per_s", "table in process, pull", "M keys/s", 1e-6),
          ("dense_push_sgd_gb_per_s", "dense 16 MB in process, SGD", "GB/s", 1),
          ("dense_push_adagrad_gb_per_s", "the same, Adagrad", "GB/s", 1),
          ("dense_push_adam_gb_per_s", "the same, Adam", "GB/s", 1))


def limits_text(results, markdown=False):
    lines = ["| limit of this machine | |", "|---|---|"] if markdown else ["limits of this machine"]
    for key, name, unit, scale in LIMITS:
        found = [part["limits"][key] * scale for part in results.get("rounds", [])
                 if part.get("limits", {}).get(key) is not None]
        if not found:
            continue
        value = f"{number(statistics.median(found))} {unit}"
        value += f" ({number(min(found))}–{number(max(found))})" if len(found) > 1 else ""
        lines.append(f"| {name} | {value} |" if markdown else f"  {name:40} {value}")
    return "\n".join(lines)
