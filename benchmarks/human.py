"""Numbers as people write them."""

from math import floor, log10


def three(number: float) -> str:
    """Format a number with three significant digits, never as a power of ten: 5.00, 0.0219, 353, 29,300."""
    if number == 0:
        return "0"
    rounded = float(f"{number:.3g}")
    decimals = max(0, 2 - floor(log10(abs(rounded))))
    return f"{rounded:,.{decimals}f}"


def duration(seconds: float) -> str:
    """Format a time: 850 ns, 95.2 µs, 1.20 ms, 3.42 s."""
    for unit, name in ((1.0, " s"), (1e-3, " ms"), (1e-6, " µs")):
        if float(f"{seconds / unit:.3g}") >= 1:
            return f"{three(seconds / unit)}{name}"
    return f"{seconds * 1e9:.0f} ns"


def per_second(rate: float) -> str:
    """Format a number of things per second: 252/s, 113 k/s, 4.41 M/s."""
    for unit, name in ((1e6, " M/s"), (1e3, " k/s")):
        if float(f"{rate:.3g}") >= unit:
            return f"{three(rate / unit)}{name}"
    return f"{three(rate)}/s"
