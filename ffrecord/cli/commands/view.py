"""`ffrecord view`: show a dataset in the browser, or write it as one page to share."""

import argparse
import html
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from errno import EADDRINUSE
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from ffrecord.cli.partial import open_partial
from ffrecord.cli.sources import add_source, local_path_of, manifest_of, open_source, positive, whole_number
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.messages import format_error
from ffrecord.cli.terminal.output import Output, format_count, format_size
from ffrecord.errors import ArgumentError, ChecksumError
from ffrecord.reading.store import Store
from ffrecord.system.signals import signals_exit

PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>ffrecord</title>
<a href="{url}">To the page</a>
"""


@contextmanager
def private_link(url: str) -> Iterator[str]:
    """Make a file that leads a browser to `url` and that only this user can read; yield its path.

    The URL has a secret, and other users could read it from the arguments of a browser's process.
    The file is removed at the end, also if SIGTERM or SIGHUP ends the process, but not if it is killed.

    Raises:
        OSError: there is no place for the file.
    """
    with signals_exit():
        fd, path = tempfile.mkstemp(prefix="ffrecord-", suffix=".html")  # created with mode 0600
        try:
            with open(fd, "w", encoding="utf-8") as file:
                file.write(PAGE.format(url=html.escape(url)))
            yield path
        finally:
            with suppress(OSError):
                os.unlink(path)


if TYPE_CHECKING:
    from ffrecord.cli.viewer.endpoints import Endpoints
    from ffrecord.cli.viewer.records import ViewedRecords
    from ffrecord.cli.viewer.server import Server

EXAMPLES = """\
examples:
  ffrecord view data/train
  ffrecord view photos.zip --port 8000 --no-open
  ffrecord view data/train --export report.html

The page is for this machine only. Ctrl-C ends it, with exit code 0.
A page of --export has the first 20,000 characters of a text, and thumbnails of pictures above 64 KiB (with Pillow)."""

PORT_MOST = 65535
REPORTED = 100  # samples in an exported page, by default


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add PATH, and the options for server and export."""
    parser.epilog = EXAMPLES
    add_source(parser)
    parser.add_argument("--port", type=_port, default=0, metavar="N", help="port of the page (default: a free one)")
    help = "open the page in a browser (default: if there is a screen, and output goes to a terminal)"
    parser.add_argument("--open", action=argparse.BooleanOptionalAction, default=None, help=help)
    parser.add_argument(
        "--export",
        type=local_path_of,
        metavar="FILE",
        help="write a page with samples, facts and sizes, and show nothing; an existing file is replaced",
    )
    help = "number of samples in the page of --export, from the first (default: %(default)s)"
    parser.add_argument("-n", "--count", type=positive, default=REPORTED, metavar="N", help=help)


def run(given: argparse.Namespace, out: Output) -> int:
    """Serve the page until Ctrl-C, or export it. Return BAD_NEWS if samples of an exported page are damaged."""
    if given.export and not given.export.endswith((".html", ".htm")):
        raise ArgumentError(f"--export is {given.export}, expected a file name that ends in .html")
    from ffrecord.cli.viewer.endpoints import Endpoints
    from ffrecord.cli.viewer.records import ViewedRecords

    store, remark, missing = _open_dataset(given)
    with store:
        records = ViewedRecords(store)
        with closing(Endpoints(records, given.source, remark, manifest_of(given))) as answers:
            if remark:
                out.remark(f"ffrecord view: {remark}")
            if given.export:
                return _export(records, answers, given, out, missing)
            from ffrecord.cli.viewer.server import Server

            with _start_server(Server, answers, given) as server:
                return _serve(server, given, out)


def _open_dataset(given: argparse.Namespace) -> tuple[Store, str, bool]:
    """Open the dataset, or the rest of it.

    If only its tables are damaged, it is opened without checks.

    Returns:
        The store, a remark on its state, and whether shards are missing.
    """
    try:
        partial = open_partial(given)
        return partial.store, partial.remark(given.source), bool(partial.wrong)
    except ChecksumError as error:
        try:
            store = open_source(given, check_data=False)
        except Exception:
            raise error from None
        return store, f"its tables are damaged, so no checksums are compared: {error}", False


def _export(
    records: "ViewedRecords", answers: "Endpoints", given: argparse.Namespace, out: Output, missing: bool
) -> int:
    from ffrecord.cli.viewer.report import make_report
    from ffrecord.system.atomic_file import save_file

    count = min(given.count, records.store.n)
    with out.progress(count, " samples", "export") as bar:
        data, damaged = make_report(records, answers, given.count, bar.update)
    save_file(data, given.export)
    if out.json:
        facts = {
            "path": given.export,
            "samples": count,
            "damaged": damaged,
            "complete": not missing,
            "bytes": len(data),
        }
        out.facts(facts)
    else:
        told = f", {damaged:,} of them damaged" if damaged else ""
        told += ", some shards missing" if missing else ""
        out.line(f"{given.export}: {format_count(count, 'sample')}{told}, {format_size(len(data))}")
    return exit_codes.BAD_NEWS if damaged or missing else exit_codes.DONE


def _start_server(server: type["Server"], answers: "Endpoints", given: argparse.Namespace) -> "Server":
    try:
        return server(answers, given.port, debug=given.debug)
    except OSError as error:
        wrong = "is in use" if error.errno == EADDRINUSE else f"cannot be used ({error.strerror})"
        raise OSError(f"port {given.port} {wrong}; use --port 0 for a free one") from None


def _serve(server: "Server", given: argparse.Namespace, out: Output) -> int:
    """Serve the page until Ctrl-C, the usual way to end it."""
    try:
        if out.json:
            out.data({"url": server.url})
        else:
            out.line(server.url)
        out.flush()
        if out.tty:
            out.remark("press Ctrl-C to end it")
        if _has_screen(out) if given.open is None else given.open:
            with ExitStack() as stack:
                try:
                    path = stack.enter_context(private_link(server.url))
                except OSError as error:
                    out.remark(f"ffrecord view: no browser was opened: {format_error(error)}")
                else:
                    Thread(target=_open_browser, args=(path,), daemon=True).start()
                server.serve_forever()
        else:
            server.serve_forever()
    except KeyboardInterrupt:
        pass
    return exit_codes.DONE


def _open_browser(path: str) -> None:
    import webbrowser  # imported here: it takes as long as reading a hundred samples, and few calls need it

    webbrowser.open(Path(path).as_uri())


def _has_screen(out: Output) -> bool:
    return out.tty and any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def _port(text: str) -> int:
    return whole_number(text, 0, PORT_MOST)
