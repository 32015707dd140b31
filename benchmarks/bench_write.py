"""Writing: one file, a dataset by several processes, a folder of pictures; each until the data is on the disk."""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

import coldness
import environment
import fio
import workloads
import write_growth
import write_original
import write_peers
import write_pictures
from harness import Measurement, add_data, add_parts, arguments, table
from program import Program, measure
from write_data import make_source
from write_figures import figures, groups, size_name
from write_packing import packing, writers
from write_timing import measure_writes
from write_ways import own_ways, plain_ways

PARTS = ("files", "datasets", "pictures", "memory")
PEERS = ("lmdb", "array_record", "bagz")
ROOM = 8 << 30  # bytes on the disk: a record store may take twice its data, beside a dataset


class Writing(Program):
    """One run of the benchmark."""

    parts = PARTS

    def files(self) -> None:
        loop = write_original.compile_loop(self.directory)
        ways = [*own_ways(), *plain_ways(), *write_original.originals(loop), *write_peers.peers()]
        usable = write_peers.usable(ways)
        for work in workloads.SMOKE_WRITES if self.smoke else workloads.WRITES:
            if not self.options.mean or work.mean in self.options.mean:
                with_fio = fio.installed() and not self.smoke
                self.add(measure_writes(usable, make_source(work), self.directory, self.rounds, with_fio))

    def datasets(self) -> None:
        work = workloads.SMOKE_PACKS if self.smoke else workloads.PACKS
        packs = packing(work, self.directory, writers(self.options.writers))
        found = packs.measure(self.rounds, with_fio=fio.installed() and not self.smoke)
        self.report.context["versions"] |= {name: v for name, v in packs.versions.items() if name != "ffrecord"}
        self.report.context["not_measured"] = packs.missing
        self.add(found)
        shutil.rmtree(packs.directory)

    def pictures(self) -> None:
        work = workloads.SMOKE_PICTURES if self.smoke else workloads.PICTURES
        with write_pictures.made(self.directory, work, smoke=self.smoke) as root:
            if root is not None:
                out = self.directory / "pictures"
                self.add(
                    write_pictures.measure_pictures(root, out, work, self.rounds, coldness.on_disk(self.directory))
                )

    def memory(self) -> None:
        works = workloads.SMOKE_GROWTHS if self.smoke else workloads.GROWTHS
        for work in works:
            if work.samples <= self.options.most_samples:
                self.add([write_growth.measure_growth(self.directory, work, 1 if self.smoke else write_growth.ROUNDS)])

    def show(self, found: Sequence[Measurement]) -> None:
        for (cache, work), group in groups(found).items():
            print(describe(work, cache), grid(list(group.of.values())), "", sep="\n", flush=True)


def describe(work: object, cache: str) -> str:
    if isinstance(work, workloads.Writes):
        return f"{size_name(work.mean)}, one file, one thread"
    if isinstance(work, workloads.Packs):
        return f"{work.samples:,} images of 32 x 32 x 3, {work.workers} workers"
    if isinstance(work, workloads.Pictures):
        return f"{work.files:,} JPEG files, {'cold' if cache == 'cold' else 'cached'}, {work.workers} workers"
    assert isinstance(work, workloads.Growth)
    return f"{work.samples:,} samples of {write_growth.SIZE} bytes, {work.workers} workers"


def grid(found: Sequence[Measurement]) -> str:
    """Return the rows, fastest first."""
    return table(
        ["", "GB/s", "samples/s", "seconds (min..max)"],
        [
            [
                m.contestant,
                f"{m.gigabytes_per_second:.3f}",
                f"{m.count / m.median:,.0f}",
                f"{m.median:.3f} ({min(m.seconds):.3f}..{max(m.seconds):.3f})",
            ]
            for m in sorted(found, key=lambda m: -m.gigabytes_per_second)
        ],
    )


def options_of(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_data(parser)
    add_parts(parser, PARTS)
    add("--mean", type=int, action="append", help="only records of this mean size in bytes; may be repeated")
    add(
        "--writers", type=Path, help="Python that has the packages of writers.txt; writers/bin/python beside this one's"
    )
    add("--most-samples", type=int, default=1_000_000, help="of the part memory; 10000000 takes minutes")


def main() -> None:
    options = arguments(__doc__, options_of)
    coldness.check_disk(options.data, ROOM, options.smoke, "nothing gets to a disk")
    if not fio.installed():
        print("NOT MEASURED: fio, which is what the storage can take. It is not installed (Debian: apt install fio).")
    versions = {**environment.versions(*PEERS), "fio": fio.version(), **environment.libraries("libz")}
    measure(Writing, "write", options, versions, figures, not_measured={})


if __name__ == "__main__":
    main()
