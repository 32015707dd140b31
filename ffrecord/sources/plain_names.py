"""Names in the form in which paths are compared: without `.` and needless `/`; all files of an archive at once."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ffrecord.sources.names import Names

Bits: TypeAlias = npt.NDArray[np.bool_]
SLASH, DOT = b"/."


def plain_names(names: Names, folders: bool = False) -> Names:
    """Return the names without parts `.`, and without a "/" that follows another one or ends a name.

    Names stay as they are if they are absolute, contain `..`, or would become empty: no path leads to them.

    Args:
        folders: keep the "/" at the end of each name.

    Returns:
        As many names; the same object if nothing was removed.
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
    """Tell whether names may have needless bytes. This fast check of all bytes is False for usual archives."""
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
    """Return where parts of names begin, bool [bytes], and before which bytes parts end, bool [bytes + 1]."""
    slash = names.blob == SLASH
    begins, ends = np.append(False, slash), np.append(slash, True)
    begins[names.offsets[:-1]] = True
    ends[names.offsets[1:]] = True
    return begins[:-1], ends


def _needless(names: Names) -> Bits:
    """Return which bytes to remove: a part `.` with the "/" behind it, or a "/" that no part precedes."""
    begins, ends = _parts(names)
    slash = names.blob == SLASH
    dot = (names.blob == DOT) & begins & ends[1:]
    needless: Bits = dot | (slash & begins)
    needless[1:] |= dot[:-1] & slash[1:]
    return needless


def _at_end(names: Names, needless: Bits) -> Bits:
    """Return which bytes are a "/" with only needless bytes behind it in its name."""
    bits = np.zeros(len(needless), bool)
    stops = names.offsets[1:]
    # The position of the last byte that is not needless, up to the end of each name.
    last = np.maximum.accumulate(np.where(needless, -1, np.arange(len(needless))))[stops[stops > 0] - 1]
    last = last[last >= names.offsets[:-1][stops > 0]]
    bits[last] = names.blob[last] == SLASH
    return bits


def _leads_away(names: Names) -> Bits:
    """Return which bytes make a name absolute, or begin a part `..`."""
    begins, ends = _parts(names)
    dot = np.append(names.blob == DOT, False)
    away: Bits = dot[:-1] & begins & ~ends[1:] & dot[1:] & np.append(ends[2:], False)
    starts = names.offsets[:-1][np.diff(names.offsets) > 0]
    away[starts] |= names.blob[starts] == SLASH
    return away


def _counts(bits: Bits, names: Names) -> npt.NDArray[np.int64]:
    """Count the bytes of each name that are set in `bits`."""
    sums = np.append(np.zeros(1, np.int64), np.cumsum(bits, dtype=np.int64))
    return sums[names.offsets[1:]] - sums[names.offsets[:-1]]
