"""What has become of a job so far: an assembly, as soon as the encoding of the samples is known."""

from ffrecord.dataset_writer.assembly import Assembly
from ffrecord.dataset_writer.encoding import Encoding, Shape, given, shown
from ffrecord.dataset_writer.finisher import Finisher
from ffrecord.dataset_writer.job import Job
from ffrecord.dataset_writer.layout import ByCount, Layout
from ffrecord.dataset_writer.messages import Assignment, Filled, Place, Sized, Stream, Written
from ffrecord.dataset_writer.skipping import Skipping
from ffrecord.errors import FFRecordError


class Books:
    """See above.

    Args:
        job: to be done.
        finisher: completes shards.
    """

    def __init__(self, job: Job, finisher: Finisher) -> None:
        self._job, self._finisher = job, finisher
        self._skipping = Skipping(job.source, job.max_skipped, job.start.skipped)
        self._before: list[Sized] = []  # pieces without samples, while nobody knows the encoding
        self._assembly: Assembly | None = None
        self._record_size = _foreseen_size(job)
        if job.encoding is not None:
            self.choose(job.encoding)

    def choose(self, encoding: Encoding) -> None:
        """The encoding is known now.

        Raises:
            OSError (also a RuntimeError): a shard cannot be made.
        """
        self._begin(encoding, encoding.payload(self._job.cut))

    def _begin(self, encoding: Encoding, payload: bytes | None) -> None:
        job, self.encoding = self._job, encoding
        cut = job.cut if payload is not None else self._without_block()
        size = None if payload is None else len(payload)
        self._assembly = Assembly(
            Layout(cut, size, job.source.total, job.start), job, payload, self._finisher, self._record_size
        )
        for piece in self._before:
            self._assembly.sized(piece)

    def _without_block(self) -> ByCount:
        return self._job.cut if isinstance(self._job.cut, ByCount) else ByCount(1)

    @property
    def foresees(self) -> bool:
        """Whether tasks get their places before they are given out."""
        return self._record_size is not None

    @property
    def mean_size(self) -> int:
        """Bytes of a record, as far as is known; 0 if nothing is."""
        if self._record_size is not None:
            return self._record_size
        return 0 if self._assembly is None else self._assembly.bytes // max(self._assembly.samples, 1)

    def foresee(self, task: Assignment) -> None:
        """Give the samples of the next task their places, if those can be told before they are made.

        Raises:
            OSError (also a RuntimeError): a shard cannot be made.
        """
        if self._record_size is not None and not isinstance(task, Stream):
            task.foreseen = self._known.foresee(task.task, task.samples)

    def sized(self, piece: Sized) -> list[Place]:
        """Take note of a serialized piece; the pieces that now have their place, in order.

        Raises:
            WorkerError: too many samples were left out.
            OSError (also a RuntimeError): a shard cannot be made.
        """
        self._skipping.add(piece)
        if self._assembly is None:
            self._before.append(piece)
            return []
        return self._assembly.sized(piece)

    def end(self, tasks: int) -> list[Place]:
        """There are that many tasks and no more; the pieces that now have their place, in order.

        Raises:
            OSError (also a RuntimeError): a shard cannot be made.
        """
        if self._assembly is None:
            known = given(self._job.declared, None)
            if known is not None:
                self.choose(known)
            else:
                # Not one sample: the file is an empty one of ffrecord 1.x, whatever the cut.
                self._begin(shown(Shape(None)), None)
        return self._known.end(tasks)

    def wrote(self, message: Written | Filled) -> tuple[int, int]:
        """Take note of what is in its place; (samples, bytes) of it.

        Raises:
            FFRecordError: it has not as many samples as places were foreseen for.
        """
        if isinstance(message, Filled):
            return self._known.filled(message)
        return self._known.wrote((message.task, message.piece))

    @property
    def first_unfinished(self) -> int:
        """The first task of which not all is sized."""
        return len(self._before) if self._assembly is None else self._assembly.first_unfinished

    @property
    def complete(self) -> bool:
        """Whether every sample is in its place."""
        return self._assembly is not None and self._assembly.complete

    @property
    def samples(self) -> int:
        """Written, those before the start among them."""
        return self._known.samples

    @property
    def bytes(self) -> int:
        """Of all samples written."""
        return self._known.bytes

    @property
    def skipped(self) -> int:
        """Samples left out."""
        return self._known.skipped

    @property
    def _known(self) -> Assembly:
        if self._assembly is None:
            raise FFRecordError(f"{self._job.files.label}: the encoding is not known")
        return self._assembly

    def check(self) -> None:
        """Raise FFRecordError unless everything was accounted for; tell how many samples were left out."""
        self._known.check()
        self._skipping.close()


def _foreseen_size(job: Job) -> int | None:
    """Bytes of each record, if that is all one has to know to give every sample its place; else None."""
    if job.encoding is None or job.max_skipped is not None or not job.source.counts:
        return None
    return job.encoding.record_size or None
