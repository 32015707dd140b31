"""Coordinate a write: hand out tasks in index order, place the chunks of workers, or do all of it in this process."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from ffrecord.dataset_writer.encoder import SLOW_SECONDS, Chunk, Encoder
from ffrecord.dataset_writer.encoding import Encoding, Shape, encoding_from_schema, shape_of
from ffrecord.dataset_writer.job import ShardJob
from ffrecord.dataset_writer.layout import FIRST_SAMPLES
from ffrecord.dataset_writer.messages import (
    ChunkEncoded,
    ChunkPlacement,
    ChunkWritten,
    SchemaChosen,
    SchemaProposed,
    TaskDone,
)
from ffrecord.dataset_writer.progress import WriteProgress
from ffrecord.dataset_writer.shard_tracker import ShardTracker
from ffrecord.dataset_writer.shards import SHORT, ShardFinisher
from ffrecord.dataset_writer.tasks import TASK_BYTES, TASK_SAMPLES, TaskOpener, TaskSamples, WorkerSettings
from ffrecord.dataset_writer.transport import Carrier, Here, Slots, ToWorkers
from ffrecord.dataset_writer.worker import work
from ffrecord.format.manifest import Shard
from ffrecord.processes.death_watch import DeathWatch
from ffrecord.processes.heartbeats import Heart
from ffrecord.processes.pool import TICK, WorkerPool
from ffrecord.processes.process import WithoutProcess
from ffrecord.system import signals

TASK_SECONDS = 0.01  # a task of less costs as much to give out as to do

Heard = SchemaProposed | ChunkEncoded | TaskDone | ChunkWritten  # what a worker says


class WorkerState:
    """What one worker has to do."""

    def __init__(self, slots: list[int]) -> None:
        self.free = slots
        self.pace = 0.0  # seconds a sample, in its latest task
        self.slow = False  # whether that took long: then a task more in reserve is one that others could have
        self.samples = 0  # of the task whose pieces are coming
        self.tasks: dict[int, int] = {}  # those not done → slot

    def did(self, task: int, samples: int, seconds: float) -> None:
        """A task is done."""
        self.free.append(self.tasks.pop(task))
        self.pace = seconds / samples if samples else 0.0
        self.slow = seconds > SLOW_SECONDS


class Coordinator:
    """Keeps the workers of a job busy: each has a task in hand and few in reserve, so that all end together.

    Args:
        job, means: with at least one worker.
        books: are told what was serialized and written.
        finisher: started here, after the last fork.
    """

    def __init__(self, job: ShardJob, means: WorkerSettings, books: ShardTracker, finisher: ShardFinisher) -> None:
        self._job, self._means, self._books, self._finisher = job, means, books, finisher
        self._source = job.source
        self._count = self._useful(means.workers)
        # One that was filled is told of while the next one is.
        self._in_hand = 2 if books.foresees else 1
        self._each = each = self._source.reserve + self._in_hand
        self._hands = [WorkerState(list(range(each * worker, each * (worker + 1)))) for worker in range(self._count)]
        self._owner: dict[tuple[int, int], int] = {}  # worker of each piece that is not written
        self._given, self._exhausted = 0, False  # tasks
        self._chosen = job.encoding is not None
        self._slots = Slots(each * self._count) if job.source.items else None
        self._carrier: Carrier = Here() if self._slots is None else ToWorkers(self._slots)
        self._decoder = msgspec.msgpack.Decoder(Heard)

    def _useful(self, workers: int) -> int:
        """No more than there are tasks."""
        total = self._source.total
        samples = min(self._means.task_samples, self._most_by_size())
        return workers if total is None else max(1, min(workers, -(-total // samples)))

    def run(self) -> None:
        """Do the job up to its last sample.

        Raises:
            WorkerError: the dataset or the encoding failed, or a worker died; names the sample.
            OSError (also a RuntimeError): writing failed.
            others: what an iterable of the user raised.
        """
        crew = self._crew()
        signals.run_with_cleanup(lambda: self._run(crew), lambda error: self._end(crew))

    def _run(self, crew: WorkerPool) -> None:
        crew.start()
        self._finisher.start()
        self._supervise(crew)
        crew.dismiss()

    def _end(self, crew: WorkerPool) -> None:
        crew.end()
        if self._slots is not None:
            self._slots.close()

    def _crew(self) -> WorkerPool:
        job, means = self._job, self._means
        encoding = {"declared": job.declared} if job.encoding is None else job.encoding.arguments
        arguments = {**job.source.arguments, **encoding, "files": job.files, "skips": job.max_skipped is not None}
        return WorkerPool(
            work,
            arguments if self._slots is None else {**arguments, "carrier": self._carrier},
            self._count,
            start_method=means.start_method,
            stuck_after=means.stuck_after,
            name=job.source.name,
        )

    def _supervise(self, crew: WorkerPool) -> None:
        job, source = self._job, self._source
        progress = WriteProgress(source.total, self._means.progress, job.files.label, job.start.samples)
        alarm = DeathWatch(crew.sentinels if source.calls else [])
        try:
            with alarm:
                while not self._books.complete:
                    gave = self._hand_out(crew, alarm)
                    waits = SHORT if self._finisher.backlog > job.backlog else TICK
                    for worker, message in crew.listen(0 if gave else waits):
                        self._hear(crew, worker, self._decoder.decode(message), progress)
                    self._finisher.check()
        finally:
            progress.close()

    def _hand_out(self, crew: WorkerPool, alarm: DeathWatch) -> bool:
        """Give a task to every worker that has few; to one at a time if the user's code takes that long.

        Returns:
            whether there may be more to give out at once.
        """
        if self._finisher.backlog > self._job.backlog:
            return False
        for tasks in range(1, self._each + 1):
            for worker, hand in enumerate(self._hands):
                if len(hand.tasks) < tasks and self._may_give(worker, hand):
                    self._give(crew, worker, alarm)
                    if self._source.calls:
                        return True
        return False

    def _may_give(self, worker: int, hand: WorkerState) -> bool:
        if self._exhausted:
            return False
        if not self._chosen:
            # One after the other until the encoding is known: it must not depend on who is first.
            return worker == 0 and not hand.tasks
        if hand.slow and len(hand.tasks) > self._in_hand:
            return False
        ahead = self._source.ahead
        return ahead is None or self._given - self._books.first_unfinished < ahead * self._count

    def _give(self, crew: WorkerPool, worker: int, alarm: DeathWatch) -> None:
        hand, task = self._hands[worker], self._given
        slot = hand.free[-1]
        with alarm.armed(crew):
            given = self._source.take(task, slot, self._most(hand), self._carrier)
        if given is None:
            self._exhausted = True
            self._send_places(crew, self._books.end(task))
            return
        self._given += 1
        hand.tasks[task] = hand.free.pop()
        self._books.foresee(given)
        crew.send(worker, msgspec.msgpack.encode(given))

    def _most(self, hand: WorkerState) -> int:
        """Samples of the next task."""
        if not self._chosen:
            return FIRST_SAMPLES
        quick = int(TASK_SECONDS / hand.pace) if hand.pace else 0
        return min(max(self._means.chunksize, quick), TASK_SAMPLES, self._most_by_size())

    def _most_by_size(self) -> int:
        return max(1, TASK_BYTES // max(self._books.mean_size, 1))

    def _hear(self, crew: WorkerPool, worker: int, message: Heard, progress: WriteProgress) -> None:
        if isinstance(message, TaskDone):
            self._hands[worker].did(message.task, message.samples, message.seconds)
            progress.add(*self._books.wrote(message))
        elif isinstance(message, ChunkWritten):
            del self._owner[message.task, message.piece]
            progress.add(*self._books.wrote(message))
        elif isinstance(message, ChunkEncoded):
            if message.samples:
                self._owner[message.task, message.piece] = worker
            hand = self._hands[worker]
            hand.samples += message.samples
            if message.last:
                hand.did(message.task, hand.samples, message.seconds)
                hand.samples = 0
            self._send_places(crew, self._books.sized(message))
        elif message.found:
            self._chosen = True
            self._books.choose(encoding_from_schema(Shape(message.schema), self._job.declared))
            for number in range(self._count):
                crew.send(number, msgspec.msgpack.encode(SchemaChosen(message.schema)))

    def _send_places(self, crew: WorkerPool, places: list[ChunkPlacement]) -> None:
        for place in places:
            crew.send(self._owner[place.task, place.piece], msgspec.msgpack.encode(place))


LOOK = 0.25  # seconds between two looks for Ctrl-C while the disk is waited for
PATIENCE = 0.5  # seconds that complete shards get to become finished ones when a write is given up


@dataclass(frozen=True)
class WriteOutcome:
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


def write_shards(job: ShardJob, means: WorkerSettings) -> WriteOutcome:
    """Write the shards of a job from its start on; all is durable but their names.

    Raises:
        WorkerError: the dataset or the encoding failed, or a worker died; names the sample.
        OSError (also a RuntimeError): writing failed.
        others: what an iterable of the user raised.
    """
    finisher = ShardFinisher()
    books = ShardTracker(job, finisher)
    shards = signals.run_with_cleanup(
        lambda: _finished(job, means, books, finisher), lambda error: finisher.cancel(PATIENCE)
    )
    shards = sorted(shards, key=lambda shard: (len(shard.name), shard.name))
    return WriteOutcome(shards, books.samples, books.bytes, books.skipped, books.encoding)


def _finished(job: ShardJob, means: WorkerSettings, books: ShardTracker, finisher: ShardFinisher) -> list[Shard]:
    if means.workers and job.source.total != job.start.samples + job.start.skipped:
        Coordinator(job, means, books, finisher).run()
    else:
        InProcessWriter(job, means, books, finisher).run()
    books.check()
    while (shards := finisher.wait(LOOK)) is None:
        pass
    return shards


class InProcessWriter:
    """Does a job up to its last sample without workers, in this process."""

    def __init__(self, job: ShardJob, means: WorkerSettings, books: ShardTracker, finisher: ShardFinisher) -> None:
        self._job, self._means, self._books, self._finisher = job, means, books, finisher
        self._heart, self._carrier = Heart(), Here()
        self._packer = Encoder(job.files, self._heart, skips=job.max_skipped is not None)
        self._held: dict[tuple[int, int], Chunk] = {}
        if job.encoding is not None:
            self._packer.encode_by(job.encoding.encode)

    def run(self) -> None:
        job = self._job
        self._progress = WriteProgress(job.source.total, self._means.progress, job.files.label, job.start.samples)
        self._finisher.start()
        try:
            with WithoutProcess(self._heart, job.source.name), self._noting_all():
                self._pack(TaskOpener(**job.source.arguments, carrier=self._carrier))
        finally:
            self._packer.close()
            self._progress.close()

    def _pack(self, opener: TaskOpener) -> None:
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

    def _do(self, run: TaskSamples) -> None:
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

    def _show(self, run: TaskSamples) -> TaskSamples:
        samples, run = self._packer.look(run, FIRST_SAMPLES)
        if samples:
            encoding = encoding_from_schema(shape_of(samples, self._job.declared), self._job.declared)
            self._books.choose(encoding)
            self._packer.encode_by(encoding.encode)
        return run

    def _write(self, places: list[ChunkPlacement]) -> None:
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
