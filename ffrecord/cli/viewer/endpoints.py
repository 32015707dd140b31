"""The answer of each address of the page."""

import itertools
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, NamedTuple

from ffrecord.cli.dataset_facts import facts_of, format_facts
from ffrecord.cli.sample_index import indices_of
from ffrecord.cli.terminal.output import to_json
from ffrecord.cli.viewer.cells import cell, whole
from ffrecord.cli.viewer.jobs import BackgroundJob, ColumnsJob, Filter, SizesJob
from ffrecord.cli.viewer.matching import Matcher
from ffrecord.cli.viewer.page import make_server_page
from ffrecord.cli.viewer.records import Unreadable, ViewedRecords, format_reason
from ffrecord.cli.viewer.values import columns_to_filter
from ffrecord.errors import ArgumentError, MissingNamesError, SampleIndexError
from ffrecord.format import manifest
from ffrecord.reading.pictures import picture_of

CELLS_MOST = 256  # samples in one answer
MATCHES_MOST = 10_000  # indices in one answer
FILTERS_MOST = 4  # filters that run at a time: about one for each open page
DAMAGED = "damaged"  # the filter for samples that cannot be shown whole

Query = Mapping[str, str]


class Response(NamedTuple):
    """An answer: body, media type and Content-Security-Policy.

    Only the page itself has a policy that allows anything.
    """

    body: bytes
    type: str = "application/json"
    policy: str = "default-src 'none'; sandbox"


class NotThereError(Exception):
    """There is no such address, or nothing at it."""


class Endpoints:
    """The answers about one dataset. Several threads may ask at once.

    Args:
        records: the dataset.
        source: its path, as given.
        remark: problem of the dataset as a whole; "" if there is none.
        listed: its manifest, if it has dataset.json.
    """

    def __init__(
        self, records: ViewedRecords, source: str, remark: str = "", listed: manifest.Manifest | None = None
    ) -> None:
        self._records, self._source, self._remark, self._listed = records, source, remark, listed
        self._filters: dict[int, Filter] = {}
        self._numbers, self._lock = itertools.count(1), Lock()
        self._jobs: dict[str, BackgroundJob] = {}
        self._addresses: dict[str, Callable[[Query], Response]] = {
            "": self._page,
            "samples": self._samples,
            "sample": self._sample,
            "picture": self._picture,
            "find": self._find,
            "facts": self._facts,
            "sizes": self._sizes,
            "columns": self._columns,
            "filter": self._filter,
            "matches": self._matches,
        }

    def __call__(self, name: str, query: Query) -> Response:
        """Answer a request for address `name`.

        Raises:
            NotThereError: there is no such address.
            ArgumentError, SampleIndexError, KeyError, ValueError: the query is wrong.
        """
        if name not in self._addresses:
            raise NotThereError(name)
        return self._addresses[name](query)

    def close(self) -> None:
        """Stop all work in the background."""
        with self._lock:
            for job in [*self._filters.values(), *self._jobs.values()]:
                job.stop()

    def begin(self) -> dict[str, Any]:
        """Return the data that the page has from the beginning."""
        store = self._records.store
        columns = [*columns_to_filter(self._records), {"name": DAMAGED, "classes": None, "damaged": True}]
        return {
            "source": self._source,
            "format": store.format,
            "count": store.n,
            "named": self._records.named,
            "columns": columns,
            "remark": self._remark,
        }

    def _page(self, _: Query) -> Response:
        body, policy = make_server_page(self.begin())
        return Response(body, "text/html; charset=utf-8", policy)

    def _samples(self, query: Query) -> Response:
        indices = [self._index(text) for text in query["at"].split(",")[: CELLS_MOST + 1]]
        if len(indices) > CELLS_MOST:
            raise ArgumentError(f"at has {len(indices)} samples, expected at most {CELLS_MOST}")
        return _json_response(self.cells(indices))

    def cells(self, indices: list[int]) -> list[dict[str, Any]]:
        """Describe samples for the grid."""
        found = self._records.columns(indices)
        return [cell(self._records, index, columns) for index, columns in zip(indices, found, strict=True)]

    def _sample(self, query: Query) -> Response:
        return _json_response(self.whole(self._index(query["at"])))

    def whole(self, index: int) -> dict[str, Any]:
        """Describe a sample for the panel."""
        return whole(self._records, index, self._records.columns([index])[0])

    def _picture(self, query: Query) -> Response:
        (columns,) = self._records.columns([self._index(query["at"])])
        value = None if isinstance(columns, Exception) else columns.get(query["column"])
        found = None if isinstance(value, Unreadable) else picture_of(value, small="small" in query)
        if found is None:
            raise NotThereError(f"sample {query['at']} has no picture in column {query['column']!r}")
        return Response(found.data, found.type)

    def _index(self, text: str) -> int:
        index = int(text)
        if not 0 <= index < self._records.store.n:
            raise SampleIndexError(f"index is {index}, expected 0 <= index < {self._records.store.n}")
        return index

    def _find(self, query: Query) -> Response:
        what = query["what"].strip()
        try:
            return _json_response({"at": next(indices_of(self._records.store, what, self._records.store.n))})
        except StopIteration:
            raise ArgumentError(
                f"{what}: there is no such sample, expected an index below {self._records.store.n}"
            ) from None
        except MissingNamesError:
            raise ArgumentError(
                f"{what!r} is not an index, and the format {self._records.store.format} has no names"
            ) from None

    def _facts(self, _: Query) -> Response:
        return _json_response(self.facts())

    def facts(self) -> dict[str, Any]:
        """Return the facts of `ffrecord info`, or the reason why there are none."""
        try:
            return format_facts(facts_of(self._source, self._listed or self._records.store))
        except Exception as error:  # a page about a damaged dataset is useful without facts
            return {"path": self._source, "wrong": format_reason(error)}

    def _sizes(self, _: Query) -> Response:
        return _json_response(self._job("sizes", SizesJob).state())

    def _columns(self, _: Query) -> Response:
        return _json_response(self._job("columns", ColumnsJob).state())

    def _job(self, name: str, kind: type[SizesJob] | type[ColumnsJob]) -> BackgroundJob:
        """Return the job of that name. The first request for it starts it."""
        with self._lock:
            if name not in self._jobs:
                self._jobs[name] = kind(self._records)
                self._jobs[name].start()
            return self._jobs[name]

    def _filter(self, query: Query) -> Response:
        column = query["column"]
        if column == DAMAGED and "damaged" in query:
            begun = Filter(self._records, None, None)
        else:
            begun = Filter(self._records, column, Matcher(query.get("value", ""), self._records.classes.get(column)))
        with self._lock:
            number = next(self._numbers)
            self._filters[number] = begun
            while len(self._filters) > FILTERS_MOST:
                self._filters.pop(min(self._filters)).stop()
        begun.start()
        return _json_response({"id": number})

    def _matches(self, query: Query) -> Response:
        with self._lock:
            found = self._filters.get(int(query["id"]))
        if found is None:
            raise NotThereError("the filter has ended; start it again")
        told, after = found.state(), int(query.get("after", "0"))
        if "stop" in query:
            found.stop()
        return _json_response({**told, "matches": found.matches[after : after + MATCHES_MOST].tolist()})


def _json_response(value: Any) -> Response:
    return Response(to_json(value).encode())
