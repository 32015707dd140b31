"""Phase and sample of every worker, in memory that is still readable after a worker was killed."""

from dataclasses import dataclass

from ffrecord.processes.shared_memory import SharedMemory

IDLE, SAMPLE, OURS = 0, 1, 2
PHASE, INDEX, BEATS, TASK, AHEAD = 0, 1, 2, 3, 4
_WORDS = 8  # int64 a worker: a cache line each


@dataclass(frozen=True)
class Beat:
    """The state of a worker at one moment.

    Attributes:
        phase: IDLE (it waits), SAMPLE (in user code) or OURS (in this package's code).
        index: index of the sample at work; outside SAMPLE that of the last one.
        beats: changes, or `index` does, with every sign of life.
        task: task of the sample.
        ahead: index of the first sample that is fetched ahead meanwhile; None if none is.
    """

    phase: int
    index: int
    beats: int
    task: int = 0
    ahead: int | None = None

    @property
    def sample(self) -> str:
        """Name of the sample."""
        return f"sample {self.index}"


class Heart:
    """The state of one worker: the worker writes it, its parent reads it.

    Args:
        words: int64 [8] in shared memory; None for private memory of this process.

    Attributes:
        words: the words; a worker in a tight loop over samples sets only words[INDEX].
    """

    def __init__(self, words: memoryview | None = None) -> None:
        # Memory of its own, laid out alike.
        self.words = memoryview(bytearray(8 * _WORDS)).cast("q") if words is None else words

    def mark(self, phase: int, index: int) -> None:
        """Record phase and sample of this worker."""
        words = self.words
        # The sample before the phase: a worker killed in between is blamed on no wrong sample.
        words[INDEX] = index
        words[PHASE] = phase
        # Not atomic, but each word has one writer and the reader only compares.
        words[BEATS] += 1

    def work(self) -> None:
        """Record that this worker goes on with a sample."""
        self.words[BEATS] += 1
        self.words[PHASE] = SAMPLE

    def begin(self, task: int) -> None:
        """Record the task of this worker."""
        self.words[TASK] = task

    def note_fetch(self, index: int | None) -> None:
        """Record the first sample that another thread of this worker fetches ahead; None if it has ended."""
        # Plus one, because 0 stands for none.
        self.words[AHEAD] = 0 if index is None else index + 1

    def idle(self) -> None:
        """Record that this worker waits."""
        self.words[PHASE] = IDLE

    def beat(self) -> Beat:
        """Return the state recorded last."""
        words = self.words
        return Beat(words[PHASE], words[INDEX], words[BEATS], words[TASK], words[AHEAD] - 1 if words[AHEAD] else None)


class Heartbeats:
    """Shared memory for the hearts of `count` workers; they inherit or unpickle it like `SharedMemory`.

    Raises:
        OSError (also a RuntimeError): the memory cannot be allocated.
    """

    def __init__(self, count: int, _memory: SharedMemory | None = None) -> None:
        self._count = count
        self._memory = SharedMemory(count * _WORDS * 8) if _memory is None else _memory
        self._words = self._memory.view.cast("q")

    def __reduce__(self) -> tuple[type["Heartbeats"], tuple[int, SharedMemory]]:
        return Heartbeats, (self._count, self._memory)

    def heart(self, worker: int) -> Heart:
        """Return the heart of one worker."""
        return Heart(self._words[worker * _WORDS : (worker + 1) * _WORDS])

    def close(self) -> None:
        """Free the memory; hearts are unusable then. May be repeated."""
        self._words.release()
        self._memory.close()
