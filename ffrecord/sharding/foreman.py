"""The parent of a write with workers: gives out work in index order, and places as soon as they are known."""

import msgspec

from ffrecord.sharding.assembly import Assembly
from ffrecord.sharding.finisher import Finisher
from ffrecord.sharding.job import Job, Means, tasks
from ffrecord.sharding.messages import Sized, Task, Written
from ffrecord.sharding.packing import pack
from ffrecord.sharding.progress import Progress
from ffrecord.workers import interrupts
from ffrecord.workers.crew import TICK, Crew

BACKLOG = 64  # shards that wait for the disk, with their tables in memory, beyond which no work is given out
SHORT = 0.005  # seconds between two looks at a backlog


class Foreman:
    """Keeps the workers of a job busy: each has a task in hand and one in reserve, no more, so that all end together.

    Args:
        job, means: with at least one sample and one worker.
        assembly: is told what was serialized and written.
        finisher: started here, after the last fork.
    """

    def __init__(self, job: Job, means: Means, assembly: Assembly, finisher: Finisher) -> None:
        self._job, self._means, self._assembly, self._finisher = job, means, assembly, finisher
        first = job.start.samples
        self._count = min(means.workers, -(-(len(job.indices) - first) // means.task_samples))
        self._tasks = tasks(job.indices, means.task_samples, first)
        self._reports: list[int] = [0] * self._count  # samples each worker was given and has not reported on
        self._owner: dict[int, int] = {}  # worker of each piece that is not written
        self._decoder = msgspec.msgpack.Decoder(Sized | Written)

    def run(self) -> None:
        """Do the job up to its last sample.

        Raises:
            WorkerError: the dataset or the encoding failed, or a worker died; names the sample.
            OSError (also a RuntimeError): writing failed.
        """
        job, means = self._job, self._means
        arguments = {"dataset": job.dataset, job.role: job.encode, "files": job.files}
        crew = Crew(pack, arguments, self._count, start_method=means.start_method, stuck_after=means.stuck_after)
        try:
            crew.start()
            self._finisher.start()
            self._supervise(crew)
            crew.dismiss()
        finally:
            with interrupts.undisturbed():
                crew.end()

    def _supervise(self, crew: Crew) -> None:
        job = self._job
        progress = Progress(len(job.indices), self._means.progress, job.files.label, job.start.samples)
        try:
            while not self._assembly.complete:
                self._hand_out(crew)
                busy = self._finisher.backlog > BACKLOG
                for worker, message in crew.listen(SHORT if busy else TICK):
                    self._take(crew, worker, self._decoder.decode(message), progress)
                self._finisher.check()
        finally:
            progress.close()

    def _hand_out(self, crew: Crew) -> None:
        """Give a task to every worker that has at most one."""
        if self._finisher.backlog > BACKLOG:
            return
        for reserve in (0, self._means.task_samples):
            for worker in range(self._count):
                if self._reports[worker] <= reserve:
                    self._give_task(crew, worker)

    def _give_task(self, crew: Crew, worker: int) -> None:
        start, indices = next(self._tasks, (0, None))
        if indices is not None:
            self._reports[worker] += len(indices)
            crew.send(worker, msgspec.msgpack.encode(Task(start, indices.tobytes())))

    def _take(self, crew: Crew, worker: int, message: Sized | Written, progress: Progress) -> None:
        if isinstance(message, Written):
            del self._owner[message.start]
            progress.add(*self._assembly.wrote(message.start))
            return
        self._owner[message.start] = worker
        self._reports[worker] -= message.samples
        for place in self._assembly.sized(message):
            crew.send(self._owner[place.start], msgspec.msgpack.encode(place))
