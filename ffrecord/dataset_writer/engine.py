"""A dataset into the shards of one directory.

The shards are the same, byte for byte, whatever the number of workers, the size of their tasks and the start method.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from ffrecord.dataset_writer.books import Books
from ffrecord.dataset_writer.coordinator import Foreman
from ffrecord.dataset_writer.encoder import Packer
from ffrecord.dataset_writer.encoding import Encoding, shape_of, shown
from ffrecord.dataset_writer.finisher import Finisher
from ffrecord.dataset_writer.job import TASK_BYTES, TASK_SAMPLES, Job, Means
from ffrecord.dataset_writer.layout import FIRST_SAMPLES
from ffrecord.dataset_writer.messages import Place
from ffrecord.dataset_writer.piece import Piece
from ffrecord.dataset_writer.progress import Progress
from ffrecord.dataset_writer.runs import Opener, Run
from ffrecord.dataset_writer.transport import Here
from ffrecord.format.manifest import Shard
from ffrecord.processes.heartbeats import Heart
from ffrecord.processes.process import WithoutProcess
from ffrecord.system import signals

LOOK = 0.25  # seconds between two looks for Ctrl-C while the disk is waited for
PATIENCE = 0.5  # seconds that complete shards get to become finished ones when a write is given up


@dataclass(frozen=True)
class Outcome:
    """What was written, after what was there at the start.

    Attributes:
        shards: in order.
        samples, bytes, skipped: in all, those before the start among them.
        encoding: of the samples.
    """

    shards: list[Shard]
    samples: int
    bytes: int
    skipped: int
    encoding: Encoding


def write_shards(job: Job, means: Means) -> Outcome:
    """Write the shards of a job from its start on; all is durable but their names.

    Raises:
        WorkerError: the dataset or the encoding failed, or a worker died; names the sample.
        OSError (also a RuntimeError): writing failed.
        others: what an iterable of the user raised.
    """
    finisher = Finisher()
    books = Books(job, finisher)
    shards = signals.ensured(lambda: _finished(job, means, books, finisher), lambda error: finisher.cancel(PATIENCE))
    shards = sorted(shards, key=lambda shard: (len(shard.name), shard.name))
    return Outcome(shards, books.samples, books.bytes, books.skipped, books.encoding)


def _finished(job: Job, means: Means, books: Books, finisher: Finisher) -> list[Shard]:
    if means.workers and job.source.total != job.start.samples + job.start.skipped:
        Foreman(job, means, books, finisher).run()
    else:
        _Alone(job, means, books, finisher).run()
    books.check()
    while (shards := finisher.wait(LOOK)) is None:
        pass
    return shards


class _Alone:
    """Does a job up to its last sample without workers, in this process."""

    def __init__(self, job: Job, means: Means, books: Books, finisher: Finisher) -> None:
        self._job, self._means, self._books, self._finisher = job, means, books, finisher
        self._heart, self._carrier = Heart(), Here()
        self._packer = Packer(job.files, self._heart, skips=job.max_skipped is not None)
        self._held: dict[tuple[int, int], Piece] = {}
        if job.encoding is not None:
            self._packer.encode_by(job.encoding.encode)

    def run(self) -> None:
        job = self._job
        self._progress = Progress(job.source.total, self._means.progress, job.files.label, job.start.samples)
        self._finisher.start()
        try:
            with WithoutProcess(self._heart, job.source.name), self._noting_all():
                self._pack(Opener(**job.source.arguments, carrier=self._carrier))
        finally:
            self._packer.close()
            self._progress.close()

    def _pack(self, opener: Opener) -> None:
        task = 0
        while (given := self._job.source.take(task, 0, self._most(), self._carrier)) is not None:
            self._books.foresee(given)
            run = opener.open(given)
            if not self._packer.ready:
                run = self._show(run)
            self._do(run)
            self._heart.idle()
            task += 1
        self._write(self._books.end(task))

    def _do(self, run: Run) -> None:
        if run.foreseen is not None:
            self._packer.fill(run, run.foreseen)
            self._note_written(wait=False)
            return
        for piece in self._packer.pieces(run):
            self._held[piece.task, piece.piece] = piece
            self._write(self._books.sized(piece.sized()))

    def _most(self) -> int:
        if not self._packer.ready:
            return FIRST_SAMPLES
        by_size = TASK_BYTES // self._books.mean_size if self._books.foresees else TASK_SAMPLES
        return max(1, min(self._means.task_samples, by_size))

    def _show(self, run: Run) -> Run:
        samples, run = self._packer.look(run, FIRST_SAMPLES)
        if samples:
            encoding = shown(shape_of(samples, self._job.declared), self._job.declared)
            self._books.choose(encoding)
            self._packer.encode_by(encoding.encode)
        return run

    def _write(self, places: list[Place]) -> None:
        for place in places:
            self._packer.write(self._held.pop((place.task, place.piece)), place.segments)
            self._note_written(wait=False)

    def _note_written(self, *, wait: bool) -> None:
        """Take note of what is in its place; with `wait`, of all that is on its way there, too."""
        while (message := self._packer.written(wait=wait)) is not None:
            self._progress.add(*self._books.wrote(message))
        self._finisher.wait_for(self._job.backlog)

    @contextlib.contextmanager
    def _noting_all(self) -> Iterator[None]:
        """A shard may be complete by what is on its way, and stays then, whatever is raised."""
        try:
            yield
            self._note_written(wait=True)
        except BaseException:
            with contextlib.suppress(Exception):
                self._note_written(wait=True)
            raise
