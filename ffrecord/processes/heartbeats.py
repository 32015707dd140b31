"""What every worker is doing, in memory that is still readable after a worker was killed."""

from dataclasses import dataclass

from ffrecord.processes.shared_memory import SharedMemory

IDLE, SAMPLE, OURS = 0, 1, 2
PHASE, INDEX, BEATS, TASK, AHEAD = 0, 1, 2, 3, 4
_WORDS = 8  # int64 a worker: a cache line each


@dataclass(frozen=True)
class Beat:
    """Where a worker is.

    Attributes:
        phase: IDLE (it waits), SAMPLE (in the user's code) or OURS (in this package's).
        index: of the sample it is at; outside SAMPLE the last one it was at.
        beats: changes, or `index` does, with every sign of life.
        task: that the sample is of.
        ahead: index of the first of the samples that are asked for meanwhile, if there are any.
    """

    phase: int
    index: int
    beats: int
    task: int = 0
    ahead: int | None = None

    @property
    def sample(self) -> str:
        """The sample in words."""
        return f"sample {self.index}"


class Heart:
    """Where one worker is: written by itself, read by its parent.

    Args:
        words: int64 [8] in shared memory; None for a heart of this process's own.

    Attributes:
        words: them; in a hurry, a worker at sample after sample sets words[INDEX] alone.
    """

    def __init__(self, words: memoryview | None = None) -> None:
        self.words = memoryview(bytearray(8 * _WORDS)).cast("q") if words is None else words

    def at(self, phase: int, index: int) -> None:
        """Say in which phase and at which sample this worker is now."""
        words = self.words
        words[INDEX] = index
        words[PHASE] = phase
        words[BEATS] += 1

    def work(self) -> None:
        """Say that this worker is about to go on with a sample."""
        self.words[BEATS] += 1
        self.words[PHASE] = SAMPLE

    def begin(self, task: int) -> None:
        """Say which task this worker is at now."""
        self.words[TASK] = task

    def ask_ahead(self, index: int | None) -> None:
        """Say from which sample on another thread of this worker asks for some; None: no longer."""
        self.words[AHEAD] = 0 if index is None else index + 1

    def idle(self) -> None:
        """Say that this worker waits."""
        self.words[PHASE] = IDLE

    def beat(self) -> Beat:
        """What was said last."""
        words = self.words
        return Beat(words[PHASE], words[INDEX], words[BEATS], words[TASK], words[AHEAD] - 1 if words[AHEAD] else None)


class Heartbeats:
    """Shared memory of `count` workers, which they get as `SharedMemory` says.

    Raises:
        OSError (also a RuntimeError): the memory cannot be had.
    """

    def __init__(self, count: int, _memory: SharedMemory | None = None) -> None:
        self._count = count
        self._memory = SharedMemory(count * _WORDS * 8) if _memory is None else _memory
        self._words = self._memory.view.cast("q")

    def __reduce__(self) -> tuple[type["Heartbeats"], tuple[int, SharedMemory]]:
        return Heartbeats, (self._count, self._memory)

    def heart(self, worker: int) -> Heart:
        """The heart of one worker."""
        return Heart(self._words[worker * _WORDS : (worker + 1) * _WORDS])

    def close(self) -> None:
        """Give the memory back; hearts are unusable then. May be repeated."""
        self._words.release()
        self._memory.close()
