"""Coordinate a write: hand out tasks in index order, place the chunks of workers, or do all of it in this process.

Two classes run the loop over tasks. `Coordinator` drives worker processes by messages. `InProcessWriter` does the same
steps without processes: it needs no messages, no reserve of tasks and no limit on held chunks.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from ffrecord.dataset_writer.encoder import SLOW_SECONDS, Chunk, Encoder
from ffrecord.dataset_writer.encoding import Encoding, Shape, encoding_from_schema, infer_shape
from ffrecord.dataset_writer.layout import FIRST_SAMPLES
from ffrecord.dataset_writer.messages import (
    Carrier,
    ChunkEncoded,
    ChunkPlacement,
    ChunkWritten,
    InProcessCarrier,
    SchemaChosen,
    SchemaProposed,
    TaskDone,
    TaskSlots,
    WorkerCarrier,
)
from ffrecord.dataset_writer.progress import WriteProgress
from ffrecord.dataset_writer.shard_tracker import ShardJob, ShardTracker
from ffrecord.dataset_writer.shards import SHORT, ShardFinisher
from ffrecord.dataset_writer.tasks import TASK_BYTES, TASK_SAMPLES, TaskOpener, TaskSamples, WorkerSettings
from ffrecord.dataset_writer.worker import work
from ffrecord.format.manifest import Shard
from ffrecord.processes.death_watch import DeathWatch
from ffrecord.processes.heartbeats import Heart
from ffrecord.processes.pool import TICK, WorkerPool
from ffrecord.processes.process import WithoutProcess
from ffrecord.system import signals

TASK_SECONDS = 0.01  # a shorter task costs as much to hand out as to do

WorkerMessage = SchemaProposed | ChunkEncoded | TaskDone | ChunkWritten  # messages from a worker


class WorkerState:
    """The open tasks and the pace of one worker."""

    def __init__(self, slots: list[int]) -> None:
        self.free = slots
        self.pace = 0.0  # seconds per sample in its latest task
        self.slow = False  # the latest task took long: then a task in reserve is better left to other workers
        self.samples = 0  # encoded so far, of the task whose chunks are arriving
        self.tasks: dict[int, int] = {}  # unfinished task → its slot

    def finish_task(self, task: int, samples: int, seconds: float) -> None:
        """Record that a task is done."""
        self.free.append(self.tasks.pop(task))
        self.pace = seconds / samples if samples else 0.0
        self.slow = seconds > SLOW_SECONDS


class Coordinator:
    """The loop that keeps the workers of a job busy.

    Each worker has one task in hand and few in reserve, so that all of them end at about the same time.

    Args:
        job: job to do.
        settings: settings of the write, with at least one worker.
        tracker: tracker of the shards; it learns of every encoded and written chunk.
        finisher: thread that finishes shards; started here, after the last fork.
    """

    def __init__(self, job: ShardJob, settings: WorkerSettings, tracker: ShardTracker, finisher: ShardFinisher) -> None:
        self._job, self._settings, self._tracker, self._finisher = job, settings, tracker, finisher
        self._source = job.source
        self._count = self._useful_workers(settings.workers)
        # With preassigned places a worker reports a task only while it does the next one.
        self._in_hand = 2 if tracker.preassigns else 1
        self._per_worker = each = self._source.reserve + self._in_hand
        # Each worker has slots of its own: memory of a task is filled again only after the same worker is done with it.
        self._states = [WorkerState(list(range(each * worker, each * (worker + 1)))) for worker in range(self._count)]
        self._owner: dict[tuple[int, int], int] = {}  # worker of each chunk that is not written
        self._handed_out, self._exhausted = 0, False  # number of tasks; True once the source has no more
        self._encoding_known = job.encoding is not None
        self._slots = TaskSlots(each * self._count) if job.source.items else None
        # A source without items never packs any, so its carrier is not used.
        self._carrier: Carrier = InProcessCarrier() if self._slots is None else WorkerCarrier(self._slots)
        self._decoder = msgspec.msgpack.Decoder(WorkerMessage)

    def _useful_workers(self, workers: int) -> int:
        """Return the number of workers, at most one per task."""
        # An estimate by the sizes known so far: a worker without a task would only cost its start.
        total = self._source.total
        samples = min(self._settings.task_samples, self._most_by_size())
        return workers if total is None else max(1, min(workers, -(-total // samples)))

    def run(self) -> None:
        """Do the job up to its last sample.

        Raises:
            WorkerError: the dataset or the encoding failed, or a worker died; names the sample.
            OSError (also a RuntimeError): writing failed.
            others: whatever the user's iterable raised.
        """
        pool = self._make_pool()
        # The pool exists before `work` begins, so the clean-up can also end workers of a half-done start.
        signals.run_with_cleanup(lambda: self._run(pool), lambda error: self._end(pool))

    def _run(self, pool: WorkerPool) -> None:
        pool.start()
        self._finisher.start()  # after the forks: a child would inherit locks that the thread holds
        self._supervise(pool)
        pool.dismiss()

    def _end(self, pool: WorkerPool) -> None:
        pool.end()
        if self._slots is not None:
            self._slots.close()

    def _make_pool(self) -> WorkerPool:
        job, settings = self._job, self._settings
        # Workers infer the columns themselves, and need the declared ones for that.
        encoding = {"declared": job.declared} if job.encoding is None else job.encoding.arguments
        arguments = {**job.source.arguments, **encoding, "files": job.files, "skips": job.max_skipped is not None}
        return WorkerPool(
            work,
            arguments if self._slots is None else {**arguments, "carrier": self._carrier},
            self._count,
            start_method=settings.start_method,
            stuck_after=settings.stuck_after,
            name=job.source.name,
        )

    def _supervise(self, pool: WorkerPool) -> None:
        job, source = self._job, self._source
        progress = WriteProgress(source.total, self._settings.progress, job.files.label, job.start.samples)
        # Only code of the user may keep this process from looking at its workers.
        death_watch = DeathWatch(pool.sentinels if source.calls else [])
        try:
            with death_watch:
                while not self._tracker.complete:
                    more = self._hand_out(pool, death_watch)
                    # The finisher cannot wake `listen`, so look at its backlog often while it keeps tasks back.
                    waits = SHORT if self._finisher.backlog > job.backlog else TICK
                    # Only collect what has arrived if more tasks could go out.
                    for worker, message in pool.listen(0 if more else waits):
                        self._handle(pool, worker, self._decoder.decode(message), progress)
                    # A full disk shows here, while the finisher writes tables.
                    self._finisher.check()
        finally:
            progress.close()

    def _hand_out(self, pool: WorkerPool, death_watch: DeathWatch) -> bool:
        """Give a task to every worker that has few. If taking a task calls user code, which may be slow, give one task
        only.

        Returns:
            True if more tasks may be ready to hand out.
        """
        # Complete shards wait with their tables in memory, 12 bytes a sample: so let the finisher catch up.
        if self._finisher.backlog > self._job.backlog:
            return False
        # In rounds: no worker gets a second task before each has a first one.
        for tasks in range(1, self._per_worker + 1):
            for worker, state in enumerate(self._states):
                if len(state.tasks) < tasks and self._may_hand_out(worker, state):
                    self._hand_out_task(pool, worker, death_watch)
                    # The user's code may have taken long: handle what workers have sent before it is called again.
                    if self._source.calls:
                        return True
        return False

    def _may_hand_out(self, worker: int, state: WorkerState) -> bool:
        if self._exhausted:
            return False
        if not self._encoding_known:
            # One task at a time until the encoding is known: it must not depend on which worker is first.
            return worker == 0 and not state.tasks
        if state.slow and len(state.tasks) > self._in_hand:
            return False
        # Chunks of streams behind the first unfinished one wait in memory or on the disk, so few may be ahead.
        ahead = self._source.ahead
        return ahead is None or self._handed_out - self._tracker.first_unfinished < ahead * self._count

    def _hand_out_task(self, pool: WorkerPool, worker: int, death_watch: DeathWatch) -> None:
        state, task = self._states[worker], self._handed_out
        # Only looked at: if `take` raises or has nothing, the slot stays free.
        slot = state.free[-1]
        with death_watch.interruptible(pool):
            task_message = self._source.take(task, slot, self._next_task_samples(state), self._carrier)
        if task_message is None:
            self._exhausted = True
            self._send_places(pool, self._tracker.end(task))
            return
        self._handed_out += 1
        state.tasks[task] = state.free.pop()
        # Before the task is sent, because its places travel with it.
        self._tracker.preassign(task_message)
        pool.send(worker, msgspec.msgpack.encode(task_message))

    def _next_task_samples(self, state: WorkerState) -> int:
        """Return the largest number of samples of the next task."""
        if not self._encoding_known:
            # Exactly so many, whatever `chunksize` is: the schema must not depend on it.
            return FIRST_SAMPLES
        quick = int(TASK_SECONDS / state.pace) if state.pace else 0
        return min(max(self._settings.chunksize, quick), TASK_SAMPLES, self._most_by_size())

    def _most_by_size(self) -> int:
        # At first the mean is unknown, and empty records have a mean of 0.
        return max(1, TASK_BYTES // max(self._tracker.mean_size, 1))

    def _handle(self, pool: WorkerPool, worker: int, message: WorkerMessage, progress: WriteProgress) -> None:
        if isinstance(message, TaskDone):
            self._states[worker].finish_task(message.task, message.samples, message.seconds)
            progress.add(*self._tracker.note_written(message))
        elif isinstance(message, ChunkWritten):
            del self._owner[message.task, message.number]
            progress.add(*self._tracker.note_written(message))
        elif isinstance(message, ChunkEncoded):
            # A chunk of skipped samples alone gets no place, so nobody asks who has it.
            if message.samples:
                self._owner[message.task, message.number] = worker
            state = self._states[worker]
            # `ChunkEncoded` tells the time since the task began, so the pace needs the samples of all its chunks.
            state.samples += message.samples
            if message.last:
                state.finish_task(message.task, state.samples, message.seconds)
                state.samples = 0
            self._send_places(pool, self._tracker.add_chunk(message))
        elif message.found:
            self._encoding_known = True
            self._tracker.choose(encoding_from_schema(Shape(message.schema), self._job.declared))
            # A socket keeps the order: each worker gets the encoding before its next task.
            for number in range(self._count):
                pool.send(number, msgspec.msgpack.encode(SchemaChosen(message.schema)))

    def _send_places(self, pool: WorkerPool, places: list[ChunkPlacement]) -> None:
        for place in places:
            pool.send(self._owner[place.task, place.number], msgspec.msgpack.encode(place))


LOOK = 0.25  # seconds between two checks for Ctrl-C while the finisher works
PATIENCE = 0.5  # seconds given to complete shards to become finished when a write is given up


@dataclass(frozen=True)
class WriteOutcome:
    """The shards and totals of a write.

    Attributes:
        shards: shards written, in order; without those that were there at the start.
        samples, bytes, skipped: totals, including those before the start.
        encoding: encoding of the samples.
    """

    shards: list[Shard]
    samples: int
    bytes: int
    skipped: int
    encoding: Encoding


def write_shards(job: ShardJob, settings: WorkerSettings) -> WriteOutcome:
    """Write the shards of a job from its start on. All of them are durable, but do not have their final names.

    Raises:
        WorkerError: the dataset or the encoding failed, or a worker died; names the sample.
        OSError (also a RuntimeError): writing failed.
        others: whatever the user's iterable raised.
    """
    finisher = ShardFinisher()
    tracker = ShardTracker(job, finisher)
    shards = signals.run_with_cleanup(
        lambda: _run_job(job, settings, tracker, finisher), lambda error: finisher.cancel(PATIENCE)
    )
    # PART_100000 follows PART_99999, which plain string order would put behind it; they also end in any order.
    shards = sorted(shards, key=lambda shard: (len(shard.name), shard.name))
    return WriteOutcome(shards, tracker.samples, tracker.bytes, tracker.skipped, tracker.encoding)


def _run_job(job: ShardJob, settings: WorkerSettings, tracker: ShardTracker, finisher: ShardFinisher) -> list[Shard]:
    # If kept shards hold every sample, only the end is left to do, and workers would not get a task.
    if settings.workers and job.source.total != job.start.samples + job.start.skipped:
        Coordinator(job, settings, tracker, finisher).run()
    else:
        InProcessWriter(job, settings, tracker, finisher).run()
    # Raises before anything is published if a sample is missing.
    tracker.check()
    while (shards := finisher.wait(LOOK)) is None:
        pass
    return shards


class InProcessWriter:
    """The loop that does a job in this process, without workers."""

    def __init__(self, job: ShardJob, settings: WorkerSettings, tracker: ShardTracker, finisher: ShardFinisher) -> None:
        self._job, self._settings, self._tracker, self._finisher = job, settings, tracker, finisher
        self._heart, self._carrier = Heart(), InProcessCarrier()
        self._encoder = Encoder(job.files, self._heart, skips=job.max_skipped is not None)
        self._held: dict[tuple[int, int], Chunk] = {}
        if job.encoding is not None:
            self._encoder.encode_by(job.encoding.encode)

    def run(self) -> None:
        job = self._job
        self._progress = WriteProgress(job.source.total, self._settings.progress, job.files.label, job.start.samples)
        self._finisher.start()
        try:
            with WithoutProcess(self._heart, job.source.name), self._note_all_at_end():
                self._encode_all(TaskOpener(**job.source.arguments, carrier=self._carrier))
        finally:
            self._encoder.close()
            self._progress.close()

    def _encode_all(self, opener: TaskOpener) -> None:
        task = 0
        # One task at a time, so slot 0 serves all of them.
        while (task_message := self._job.source.take(task, 0, self._next_task_samples(), self._carrier)) is not None:
            self._tracker.preassign(task_message)
            task_samples = opener.open(task_message)
            if not self._encoder.ready:
                task_samples = self._infer_encoding(task_samples)
            self._encode_task(task_samples)
            self._heart.idle()
            task += 1
        self._write(self._tracker.end(task))

    def _encode_task(self, task_samples: TaskSamples) -> None:
        if task_samples.preassigned is not None:
            self._encoder.fill(task_samples, task_samples.preassigned)
            # Do not wait: the thread sends this task to the disk while the next one is encoded.
            self._note_all_written(wait=False)
            return
        for chunk in self._encoder.chunks(task_samples):
            self._held[chunk.task, chunk.number] = chunk
            # Earlier chunks of this process are sized already, so the chunk usually gets its place at once.
            self._write(self._tracker.add_chunk(chunk.to_message()))

    def _next_task_samples(self) -> int:
        if not self._encoder.ready:
            return FIRST_SAMPLES
        by_size = TASK_BYTES // self._tracker.mean_size if self._tracker.preassigns else TASK_SAMPLES
        return max(1, min(self._settings.task_samples, by_size))

    def _infer_encoding(self, task_samples: TaskSamples) -> TaskSamples:
        samples, task_samples = self._encoder.read_first(task_samples, FIRST_SAMPLES)
        if samples:
            # A task whose samples all fail shows nothing; then the next task is looked at.
            encoding = encoding_from_schema(infer_shape(samples, self._job.declared), self._job.declared)
            self._tracker.choose(encoding)
            self._encoder.encode_by(encoding.encode)
        return task_samples

    def _write(self, places: list[ChunkPlacement]) -> None:
        for place in places:
            self._encoder.write(self._held.pop((place.task, place.number)), place.segments)
            self._note_all_written(wait=False)

    def _note_all_written(self, *, wait: bool) -> None:
        """Record the chunks that are written; with `wait`, wait for those that are on their way."""
        while (message := self._encoder.take_written(wait=wait)) is not None:
            self._progress.add(*self._tracker.note_written(message))
        # Nobody else holds tasks back here, so wait until few shards have their tables in memory.
        self._finisher.wait_for(self._job.backlog)

    @contextlib.contextmanager
    def _note_all_at_end(self) -> Iterator[None]:
        """Record all written chunks at the end, also after an error: a shard they complete stays for the next write."""
        try:
            yield
            self._note_all_written(wait=True)
        except BaseException:
            # The first error is the one to report.
            with contextlib.suppress(Exception):
                self._note_all_written(wait=True)
            raise
