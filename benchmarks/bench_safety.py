"""What safety costs: reading with checks against without, and writing until it is durable against writing."""

import argparse
from collections.abc import Sequence

import coldness
import environment
import workloads
from bench_write import grid
from harness import Measurement, add_data, add_parts, arguments
from harness import measure as measure_contestants
from program import Program, measure
from read_data import Files, make_records, write_ffr
from read_figures import size_name
from read_timing import Cold, measure_hot
from read_ways import Way, ours
from safety_figures import figures
from safety_ways import dataset_contestant, dataset_ways, file_ways
from write_data import make_source
from write_figures import groups
from write_timing import measure_writes

PARTS = ("cached", "cold", "files", "datasets")
USUAL = "cached,files,datasets"
ROOM = 4 << 30
COLD_SECONDS = 2.0


def reading_ways() -> list[Way]:
    """Return the ways to read, each with checks and without."""
    ways = (("read", "auto"), ("read_packed", "auto"), ("read", "mmap"))
    return [ours(method, io, check) for method, io in ways for check in (True, False)]


class Safety(Program):
    """One run of the benchmark."""

    parts = PARTS

    def _reads(self) -> list[workloads.Reads]:
        return workloads.SMOKE_READS if self.smoke else workloads.SAFETY_READS

    def cached(self) -> None:
        for work in self._reads():
            records = make_records(work)
            files = Files.of(self.directory, records)
            write_ffr(files.ffr, records)
            self.add(measure_hot(reading_ways(), files, records, self.rounds))
            files.delete()

    def cold(self) -> None:
        """Measure where the storage is the limit."""
        ways = [way for way in reading_ways() if way.name.startswith("read auto")]
        for work in self._reads():
            records = make_records(work)
            files = Files.of(self.directory, records)
            write_ffr(files.ffr, records)
            self.add(Cold(ways, files, records, COLD_SECONDS).measure(self.rounds))
            files.delete()

    def files(self) -> None:
        for work in workloads.SMOKE_WRITES if self.smoke else workloads.SAFETY_WRITES:
            self.add(measure_writes(file_ways(), make_source(work), self.directory, self.rounds, with_fio=False))

    def datasets(self) -> None:
        for work in workloads.SMOKE_WRITES if self.smoke else workloads.SAFETY_WRITES:
            source = make_source(work)
            taken = measure_contestants(
                [dataset_contestant(way, source, self.directory) for way in dataset_ways()], self.rounds
            )
            self.add(
                [
                    Measurement(name, work, seconds, source.size, source.n, "hot", {"role": "ours"})
                    for name, seconds in taken.items()
                ]
            )

    def show(self, found: Sequence[Measurement]) -> None:
        for (cache, work), group in groups(found).items():
            does = "read" if isinstance(work, workloads.Reads) else "written"
            print(f"{size_name(work.mean)}, {does}, {cache}", grid(list(group.of.values())), "", sep="\n", flush=True)


def options_of(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    add_parts(parser, PARTS)
    # An epoch from an empty page cache is limited by the storage, with or without checks.
    parser.set_defaults(part=set(USUAL.split(",")))


def main() -> None:
    options = arguments(__doc__, options_of)
    coldness.check_disk(options.data, ROOM, options.smoke, "nothing gets to a disk")
    measure(Safety, "safety", options, environment.versions(), figures)


if __name__ == "__main__":
    main()
