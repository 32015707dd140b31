"""The exported page: some samples in one file that needs no server."""

import base64
from collections.abc import Callable
from typing import Any

from ffrecord.cli.viewer.endpoints import Endpoints
from ffrecord.cli.viewer.jobs import BackgroundJob, ColumnsJob, SizesJob
from ffrecord.cli.viewer.matching import comparable_value
from ffrecord.cli.viewer.page import make_standalone_page
from ffrecord.cli.viewer.records import Unreadable, ViewedRecords
from ffrecord.cli.viewer.values import columns_to_filter, value_of
from ffrecord.reading.pictures import picture_of

TOGETHER = 16  # samples that are read together


def make_report(
    records: ViewedRecords, answers: Endpoints, count: int, advance: Callable[[int], object]
) -> tuple[bytes, int]:
    """Make a page of the first `count` samples, with facts, columns and sizes.

    Args:
        records: the dataset.
        answers: answers of the page.
        count: number of samples.
        advance: called with the number of samples that were added.

    Returns:
        The page, and how many of its samples are damaged.
    """
    count = min(count, records.store.n)
    names = [column["name"] for column in columns_to_filter(records)]
    cells: list[dict[str, Any]] = []
    for start in range(0, count, TOGETHER):
        found = answers.cells(list(range(start, min(start + TOGETHER, count))))
        cells += [
            {**each, **_panel_data(records, answers, each), "values": _filter_values(records, names, each["at"])}
            for each in found
        ]
        advance(len(found))
    kept = {
        "begin": {**answers.begin(), "kept": count},
        "cells": cells,
        "facts": answers.facts(),
        "columns": _run_job(ColumnsJob(records)),
        "sizes": _run_job(SizesJob(records)),
    }
    return make_standalone_page(kept), sum(cell["error"] is not None for cell in cells)


def _run_job(job: BackgroundJob) -> dict[str, Any]:
    job.run()
    return job.state()


def _panel_data(records: ViewedRecords, answers: Endpoints, told: dict[str, Any]) -> dict[str, Any]:
    """Return the data that the page asks for when a cell is opened."""
    whole = answers.whole(told["at"])
    where: dict[str, Any] = {name: whole[name] for name in ("file", "place", "bytes") if name in whole}
    return {**where, "whole": whole["fields"], "data": _picture_urls(records, told)}


def _filter_values(records: ViewedRecords, names: list[str], index: int) -> dict[str, Any]:
    """Return column → the part of the value that the page's filter compares."""
    (columns,) = records.columns([index])
    return {name: comparable_value(value_of(records, name, index, columns)) for name in names}


def _picture_urls(records: ViewedRecords, told: dict[str, Any]) -> dict[str, str]:
    """Return column → data URL of the picture."""
    (columns,) = records.columns([told["at"]])
    found = {}
    for name in told["pictures"]:
        value = None if isinstance(columns, Exception) else columns.get(name)
        picture = None if isinstance(value, Unreadable) else picture_of(value, small=True)
        if picture is not None:
            found[name] = f"data:{picture.type};base64,{base64.b64encode(picture.data).decode()}"
    return found
