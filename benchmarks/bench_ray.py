"""Ray Data: datasets written and read by tasks of two workers, and by two processes without Ray."""

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import coldness
import environment
import workloads
from bench_write import grid
from harness import Measurement, add_data, add_parts, arguments, take_turns
from program import Program, measure
from ray_figures import figures
from write_figures import groups

PARTS = ("writing", "reading")
ROOM = 8 << 30


class RayProgram(Program):
    """One run of the benchmark."""

    parts = PARTS

    def run(self) -> None:
        from ray_ways import Ways  # imported after the environment variables for Ray are set

        for work in workloads.SMOKE_BLOCKS if self.smoke else workloads.BLOCKS:
            directory = self.directory / work.content
            directory.mkdir()
            ways = Ways(directory, work)
            for part in self.parts:
                if part in self.options.part:
                    self._measure(work, ways, part)
            shutil.rmtree(directory)

    def _measure(self, work: workloads.Blocks, ways: object, part: str) -> None:
        contestants = getattr(ways, part)()
        for contestant in contestants:
            contestant.check()
            contestant.run()  # the first run starts workers and imports modules
        size = ways.samples.size  # type: ignore[attr-defined]
        self.add(
            [
                Measurement(name, work, seconds, size, work.samples, "hot", {"role": "ours", "part": part})
                for name, seconds in take_turns(contestants, self.rounds).items()
            ]
        )

    def show(self, found: Sequence[Measurement]) -> None:
        for (_, work), group in groups(found).items():
            assert isinstance(work, workloads.Blocks)
            about = f"{work.samples:,} {work.content} of {work.mean:,} bytes, {work.workers} workers, cached"
            print(about, grid(list(group.of.values())), "", sep="\n", flush=True)


@contextmanager
def started(workers: int) -> Iterator[None]:
    """Start Ray on this machine, without network requests; its tasks find these modules."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_memory_monitor_refresh_ms": "0"}
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    import logging

    import ray
    import ray.data

    directory = tempfile.mkdtemp(prefix="ffr-")
    ray.init(
        address="local",
        num_cpus=workers,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        _temp_dir=directory,
    )
    try:
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.op_resource_reservation_enabled = False  # otherwise one of two workers would be idle
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(directory, ignore_errors=True)


def options_of(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    add_parts(parser, PARTS)


def main() -> None:
    options = arguments(__doc__, options_of)
    coldness.check_disk(options.data, ROOM, options.smoke, "nothing gets to a disk")
    with started(workloads.BLOCKS[0].workers):
        measure(RayProgram, "ray", options, environment.versions("ray", "pyarrow"), figures)


if __name__ == "__main__":
    main()
