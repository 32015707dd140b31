"""Tables of waits for batches: percentiles, the longest of a round, and the first."""

from collections.abc import Sequence
from statistics import median

from harness import Measurement
from human import duration, three
from waits import PERCENTILES

RIVALS = ("peer", "plain", "original")  # roles that ours is compared with


def with_tails(measured: Sequence[Measurement]) -> list[Measurement]:
    """Return the measurements that have tails: older results have none, nor have limits without batches."""
    return [m for m in measured if "tails" in m.details]


def best_rival(measured: Sequence[Measurement]) -> Measurement | None:
    """Return the rival with the least p99; the first role of RIVALS that is there counts."""
    known = [m for m in with_tails(measured) if "p99" in m.details["tails"]]
    for role in RIVALS:
        if rivals := [m for m in known if m.details.get("role") == role]:
            return min(rivals, key=lambda m: float(m.details["tails"]["p99"]))
    return None


def tail_rows(measured: Sequence[Measurement]) -> list[list[str]]:
    """Return a header and a row for each measurement with tails, the least p99 first; [] if none has any.

    Percentiles with too few batches are empty. The last column has the p99 of ours over that of the best rival.
    """
    found, rival = with_tails(measured), best_rival(measured)
    if not found:
        return []
    header = ["", *PERCENTILES, "longest of a round (of all)", "first batch", "batches"]
    rows = [row(m) for m in sorted(found, key=ordering)]
    if rival is not None:
        header.append(f"p99 / {rival.contestant}")
        rows = [[*cells, over(m, rival)] for cells, m in zip(rows, sorted(found, key=ordering), strict=True)]
    return [header, *rows]


def ordering(m: Measurement) -> float:
    tails = m.details["tails"]
    return float(tails.get("p99", tails["p50"]))


def row(m: Measurement) -> list[str]:
    tails = m.details["tails"]
    percentiles = [duration(tails[name]) if name in tails else "" for name in PERCENTILES]
    longest = f"{duration(median(tails['longest']))} ({duration(max(tails['longest']))})"
    return [m.contestant, *percentiles, longest, duration(median(tails["first"])), f"{tails['count']:,}"]


def over(m: Measurement, rival: Measurement) -> str:
    if m.details.get("role") != "ours" or "p99" not in m.details["tails"]:
        return ""
    return three(m.details["tails"]["p99"] / rival.details["tails"]["p99"])
