"""Names as paths are compared: without `.` and needless `/`, of all files of an archive at once."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ffrecord.sources.names import Names

Bits: TypeAlias = npt.NDArray[np.bool_]
SLASH, DOT = b"/."


def plain_names(names: Names, folders: bool = False) -> Names:
    """The names without parts `.`, and without a "/" that follows another one or ends a name.

    Names that are absolute, have `..` or nothing else stay as they are: no path leads there.

    Args:
        folders: the "/" that ends each name stays.

    Returns:
        As many names; the same object if nothing is to be left out.
    """
    if not _may_have_needless(names, folders):
        return names
    needless = _needless(names)
    if not folders:
        needless |= _at_end(names, needless)
    sizes = np.diff(names.offsets)
    counts = _counts(needless, names)
    stay = _counts(_leads_away(names), names).astype(bool) | (counts == sizes)
    needless &= ~np.repeat(stay, sizes)
    if not needless.any():
        return names
    offsets = np.zeros(len(names.offsets), np.int64)
    np.cumsum(sizes - np.where(stay, 0, counts), out=offsets[1:])
    return Names(names.blob[~needless], offsets)


def _may_have_needless(names: Names, folders: bool) -> bool:
    """Whether a look at most bytes in one go leaves that open; of usual archives it does not."""
    blob, whole = names.blob, names.blob.tobytes()
    if b"//" in whole or b"/./" in whole:
        return True
    some = np.flatnonzero(np.diff(names.offsets))
    starts, lasts = names.offsets[some], names.offsets[some + 1] - 1
    alone = starts == lasts
    before = (blob[starts] == DOT) & (alone | (blob[np.minimum(starts + 1, lasts)] == SLASH))
    behind = (blob[lasts] == DOT) & (alone | (blob[np.maximum(lasts - 1, starts)] == SLASH))
    if not folders:
        behind |= blob[lasts] == SLASH
    return bool((before | behind).any())


def _parts(names: Names) -> tuple[Bits, Bits]:
    """Whether a part of a name begins at each byte, and whether one ends before it: [bytes], [bytes + 1]."""
    slash = names.blob == SLASH
    begins, ends = np.append(False, slash), np.append(slash, True)
    begins[names.offsets[:-1]] = True
    ends[names.offsets[1:]] = True
    return begins[:-1], ends


def _needless(names: Names) -> Bits:
    """Which bytes are a part `.` with the "/" behind it, or a "/" before which there is no part."""
    begins, ends = _parts(names)
    slash = names.blob == SLASH
    dot = (names.blob == DOT) & begins & ends[1:]
    needless: Bits = dot | (slash & begins)
    needless[1:] |= dot[:-1] & slash[1:]
    return needless


def _at_end(names: Names, needless: Bits) -> Bits:
    """Which bytes are a "/" with nothing but needless ones behind it in the name."""
    bits = np.zeros(len(needless), bool)
    stops = names.offsets[1:]
    # The last byte that is not needless, of any name up to there.
    last = np.maximum.accumulate(np.where(needless, -1, np.arange(len(needless))))[stops[stops > 0] - 1]
    last = last[last >= names.offsets[:-1][stops > 0]]
    bits[last] = names.blob[last] == SLASH
    return bits


def _leads_away(names: Names) -> Bits:
    """Which bytes make a name absolute, or are the first of a part `..`."""
    begins, ends = _parts(names)
    dot = np.append(names.blob == DOT, False)
    away: Bits = dot[:-1] & begins & ~ends[1:] & dot[1:] & np.append(ends[2:], False)
    starts = names.offsets[:-1][np.diff(names.offsets) > 0]
    away[starts] |= names.blob[starts] == SLASH
    return away


def _counts(bits: Bits, names: Names) -> npt.NDArray[np.int64]:
    """How many of the bytes of each name."""
    sums = np.append(np.zeros(1, np.int64), np.cumsum(bits, dtype=np.int64))
    return sums[names.offsets[1:]] - sums[names.offsets[:-1]]
