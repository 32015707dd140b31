"""The way of data stays short: how often a value is handed from one module to another, counted while a call runs.

`pytest -s tests/project/test_hops.py` prints the ways. Compiled parts are not seen.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import ffrecord

PACKAGE = str(Path(ffrecord.__file__).parent) + "/"
DEPTH = 3  # objects of ours in each other, at most, that hold the value


def module_of(frame: FrameType | None) -> str | None:
    """Return the module of the nearest frame that is part of the package."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(PACKAGE):
            return path.removeprefix(PACKAGE).removesuffix(".py")
        frame = frame.f_back
    return None


def holds(found: Any, value: object, depth: int = DEPTH) -> bool:
    """Tell whether `found` is the value, or an object of ours that holds it."""
    if found is value:
        return True
    if depth == 0 or not type(found).__module__.startswith("ffrecord"):
        return False
    return any(holds(each, value, depth - 1) for each in getattr(found, "__dict__", {}).values())


def hops_of(value: object, call: Callable[[], object]) -> list[tuple[str, str]]:
    """Return the (module, module) between which `value` is handed during a call, each once, in their order."""
    found: list[tuple[str, str]] = []

    def see(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        hop = module_of(frame.f_back), module_of(frame)
        if None in hop or hop[0] == hop[1] or hop in found:
            return
        sys.setprofile(None)  # reading attributes may run code, too
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if any(holds(frame.f_locals.get(name), value) for name in names):
            found.append(hop)  # type: ignore[arg-type]
        sys.setprofile(see)

    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(None)
    print(*map(" → ".join, found), sep="\n")
    assert not [hop for hop in found if hop[::-1] in found], "a way back up"
    return found


def samples() -> list[dict[str, Any]]:
    return [{"x": i, "y": b"abc" * i} for i in range(100)]


def test_indices_of_a_read(tmp_path: Path) -> None:
    ffrecord.DatasetWriter(tmp_path / "x", num_workers=0).from_indexed_dataset(samples())
    indices = np.array([5, 99])
    with ffrecord.FileReader(tmp_path / "x") as reader:
        assert 1 <= len(hops_of(indices, lambda: reader.read(indices))) <= 3


def test_the_dataset_of_a_write(tmp_path: Path) -> None:
    dataset, writer = samples(), ffrecord.DatasetWriter(tmp_path / "x", num_workers=0)
    assert 5 <= len(hops_of(dataset, lambda: writer.from_indexed_dataset(dataset))) <= 15
