"""Make benchmarks/tables/machines.md, the same ratios on several machines: `python machines_report.py`.

Results may be named: `python machines_report.py RESULTS.jsonl ...`; else all are read.

Of each CPU and benchmark, each part is taken from the last file that has it.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import formats_figures
import loader_figures
import newest_figures
import read_figures
import remote_figures
import write_figures
from harness import RESULTS, Measurement
from read_figures import Figure
from report import TABLES_OF, load, replaced
from report_tables import markdown

MEASURED: dict[str, Callable[[Sequence[Measurement]], Sequence[Figure]]] = {
    "write": write_figures.figures,
    "loader": loader_figures.figures,
    "read": read_figures.figures,
    "formats": formats_figures.figures,
    "remote": remote_figures.figures,
    "newest": newest_figures.figures,
}
NOT_MEASURED = "-"
TEN = (  # those of docs/benchmarks.md
    "200,000 images, 2 workers: DatasetWriter, whole script / mds, whole script",
    "images: Loader / ffcv",
    "images, DataLoader: Dataset, shuffle=True / numpy.memmap",
    "photographs: Loader, RandomResizedCrop / ffcv",
    "cached 256 B: read auto / bagz",
    "sequential, cached 4 MB: iteration auto / numpy.memmap",
    "zip: ZipReader.read / zipfile.read",
    "Examples, 16 floats: ExampleParser.parse_batch / google.protobuf, to arrays",
    "110 kB, 20 ms, 64 requests: iter_batches / curl, 64 in parallel",
    "cached 110 kB: read auto / numpy.memmap",
)
READ = tuple(f"{where} {size}" for where in ("cached", "cold") for size in ("256 B", "4 KiB", "110 kB", "4 MB"))
Machine = Mapping[str, Figure]  # by what they compare


def machine_of(path: Path) -> tuple[str, str]:
    """Return the CPU that the results of a file were measured on, and when; two empty texts for an empty file."""
    with path.open() as lines:
        first = lines.readline()
    record = json.loads(first) if first.strip() else {"machine": {"cpu": ""}, "time": ""}
    return str(record["machine"]["cpu"]), str(record["time"])


def machines(paths: Sequence[Path]) -> dict[str, Machine]:
    """Return the figures of each CPU that has any of those shown; of a figure that was measured again, the later."""
    of: dict[str, list[tuple[str, Path]]] = {}
    for path in paths:
        cpu, time = machine_of(path)
        of.setdefault(cpu, []).append((time, path))
    found = {cpu: figures_of([path for _, path in sorted(those)]) for cpu, those in of.items() if cpu}
    return {cpu: machine for cpu, machine in found.items() if any(map(is_shown, machine))}


def figures_of(paths: Sequence[Path]) -> Machine:
    found: dict[str, Figure] = {}
    for bench, figures in MEASURED.items():
        if measured := load(paths, bench)[0]:
            found |= {figure.about: figure for figure in figures(measured) if " / " in figure.about}
    return found


def is_shown(about: str) -> bool:
    """Tell whether a ratio is one of docs/benchmarks.md, or a main one of reading."""
    where, _, sides = about.partition(": ")
    ours, _, other = sides.partition(" / ")
    if about in TEN or where.endswith("beside the newest") or where == "images by index":
        return True
    return where in READ and ours == "read auto" and other not in ("read pread", "read direct")


def rows(of: Mapping[str, Machine]) -> list[list[str]]:
    """Return a row for each shown ratio that any machine has: first those of docs/benchmarks.md."""
    abouts = [about for about in dict.fromkeys(about for each in of.values() for about in each) if is_shown(about)]
    ordered = [*(about for about in TEN if about in abouts), *(about for about in abouts if about not in TEN)]
    return [
        [about, *(machine[about].row()[1] if about in machine else NOT_MEASURED for machine in of.values())]
        for about in ordered
    ]


def text(paths: Sequence[Path]) -> str:
    """Return the table."""
    of = machines(paths)
    return markdown(["ratio of speeds: ours / other", *of], rows(of))


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the table of the results that are named, or of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="*", default=sorted(RESULTS.glob("*.jsonl")))
    parser.add_argument("--tables", type=Path, default=TABLES_OF, help="directory of machines.md")
    given = parser.parse_args(arguments)
    page = given.tables / "machines.md"
    page.write_text(replaced(page.read_text(), text(given.results)))


if __name__ == "__main__":
    main()
