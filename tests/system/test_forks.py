"""What forked children make anew: values that a thread of the parent was making."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from ffrecord.system.forks import Once


def test_a_value_is_made_once_for_many_threads() -> None:
    """Also in a child that was forked meanwhile."""
    calls: list[int] = []

    def make() -> int:
        time.sleep(0.05)
        calls.append(os.getpid())
        return 7

    once = Once(make)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: once.get(), range(8))) == [7] * 8
    assert len(calls) == 1
    other = Once(make)
    thread = threading.Thread(target=other.get)
    thread.start()
    time.sleep(0.02)
    child = os.fork()
    if child == 0:
        os._exit(other.get())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    thread.join()
