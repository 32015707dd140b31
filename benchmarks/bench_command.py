"""The `ffrecord` command, as users run it: how soon it answers, and how fast it verifies."""

import argparse
from collections.abc import Sequence

import coldness
import command_starts
import command_verify
import environment
import fio
import workloads
from command_figures import figures
from harness import Measurement, add_data, add_parts, arguments, table
from program import Program, measure

PARTS = ("import", "info", "view", "cached", "cold")
ROOM = 5 << 30


class Command(Program):
    """One run of the benchmark."""

    parts = PARTS

    def run(self) -> None:
        for part in self.parts:
            if part in self.options.part:
                self.add(getattr(self, f"part_{part}")())

    def part_import(self) -> list[Measurement]:
        return command_starts.importing(workloads.IMPORTED, self.rounds)

    def part_info(self) -> list[Measurement]:
        work = workloads.SMOKE_SHOWN_SHARDS if self.smoke else workloads.SHOWN_SHARDS
        return command_starts.info(self.directory, work, self.rounds)

    def part_view(self) -> list[Measurement]:
        work = workloads.SMOKE_VIEWED if self.smoke else workloads.VIEWED
        return command_starts.view(self.directory, work, self.rounds, browser=not self.smoke)

    def part_cached(self) -> list[Measurement]:
        works = workloads.SMOKE_VERIFIED if self.smoke else workloads.VERIFIED
        return [m for work in works for m in command_verify.cached(self.directory, work, self.rounds)]

    def part_cold(self) -> list[Measurement]:
        works = workloads.SMOKE_VERIFIED_COLD if self.smoke else workloads.VERIFIED_COLD
        return [m for work in works for m in command_verify.cold(self.directory, work, self.rounds)]

    def show(self, found: Sequence[Measurement]) -> None:
        rows = [
            [m.contestant, f"{1000 * m.median:.1f} ms", f"{1000 * min(m.seconds):.1f} .. {1000 * max(m.seconds):.1f}",
             f"{m.gigabytes_per_second:.2f} GB/s" if m.size else ""]
            for m in found
        ]  # fmt: skip
        print(table(["", "median", "fastest .. slowest", ""], rows), "", sep="\n", flush=True)


def options_of(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    add_parts(parser, PARTS)


def main() -> None:
    options = arguments(__doc__, options_of)
    coldness.check_disk(options.data, ROOM, options.smoke, "what is called cold is not")
    versions = {**environment.versions("msgspec", "tqdm"), "fio": fio.version()}
    measure(Command, "command", options, versions, figures, read_ahead_kb=environment.read_ahead())


if __name__ == "__main__":
    main()
