"""The benchmarks record how long each batch is waited for, and make tables of the tails."""

import json

import benchmark_runs
import pytest

# A clock that only sleeping moves, so that waits are known to the nanosecond.
STILL = """
import json, math, random, time, types
import waits
now = 1_000
def clock():
    return now
def sleep(nanoseconds):
    global now
    now += nanoseconds
waits.time = types.SimpleNamespace(perf_counter_ns=clock, perf_counter=lambda: now / 1e9)
def sleeping(times):
    for each in times:
        sleep(each)
        yield each
"""


def printed(program: str) -> list[str]:
    """Return the lines that a program prints."""
    done = benchmark_runs.program(program)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_percentiles_are_those_of_all_rounds_without_the_first_batch() -> None:
    """They are the waits that a sorted list has at the next higher place."""
    program = """
rounds = [[9_000_000, *(random.Random(seed).randrange(1_000, 5_000_000) for _ in range(400))] for seed in range(4)]
recorded, use = waits.Waits(401), None
for number, times in enumerate(rounds):
    use = None if number % 2 else lambda batch: sleep(700)
    begun = now
    sleep(50)
    seconds = recorded.record(sleeping(times), use, begun)
    assert seconds == (50 + sum(times) + (0 if number % 2 else 700 * 401)) / 1e9, seconds
tails = recorded.details()["tails"]
together = sorted(each for times in rounds for each in times[1:])
for name, share in {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}.items():
    assert tails[name] == together[math.ceil(share * (len(together) - 1))] / 1e9, name
assert tails["longest"] == [max(times[1:]) / 1e9 for times in rounds]
assert tails["first"] == [9_000_050 / 1e9] * 4
print(tails["count"], [list(each[1:]) == times[1:] for each, times in zip(recorded.rounds, rounds)])
"""
    assert printed(STILL + program) == ["1600 [True, True, True, True]"]


def test_percentiles_need_enough_batches() -> None:
    program = """
for count in (1, 2, 100, 101, 1000, 1001):
    recorded = waits.Waits(count)
    recorded.record(sleeping([1_000] * count))
    print(count, sorted(recorded.details().get("tails", ())))
nothing = waits.Waits(1)
nothing.record(())
nothing.add([])
print(nothing.details())
"""
    always = ["count", "first", "longest", "p50"]
    assert printed(STILL + program) == [
        "1 []",
        f"2 {always}",
        f"100 {always}",
        f"101 {[*always, 'p99']}",
        f"1000 {[*always, 'p99']}",
        f"1001 {[*always, 'p99', 'p99.9']}",
        "{}",
    ]


def test_a_limit_ends_a_round_after_the_batch_that_passes_it() -> None:
    program = """
for use in (None, str):
    recorded = waits.Waits(10)
    for limit in (2.5, math.inf):
        print(recorded.record(sleeping([1_000_000_000] * 10), use, limit=limit), len(recorded.rounds[-1]))
"""
    assert printed(STILL + program) == ["3.0 3", "10.0 10"] * 2


def test_short_batches_are_timed_again_without_the_clock() -> None:
    """Recording of 100 ns is more than a hundredth of 9 µs, and less than that of 11 µs."""
    program = """
waits.recording_seconds = lambda: 100e-9
made = 0
def make(each):
    global made
    made += 1
    sleep(made)  # of making, which is not timed
    return sleeping([each + made] * 20)
for each in (9_000, 11_000):
    made, recorded = 0, waits.Waits(20)
    print(f"{recorded.timed(lambda: make(each)):.6f}", made, len(recorded.rounds), int(recorded.rounds[0][0]))
"""
    assert printed(STILL + program) == ["0.000180 2 1 9001", "0.000220 1 1 11001"]


def test_a_contestant_that_sleeps_has_the_tails_of_its_sleep() -> None:
    """The waits of real sleeps, taken in turns as in a benchmark, add up to the times of the rounds."""
    program = """
import json, time, harness
from waits import Waits
def batches():
    time.sleep(0.02)
    for number in range(400):
        time.sleep(0.03 if number == 200 else 0.005 if number % 50 == 7 else 0.0001)
        yield bytes(100_000)
def contestant(name):
    waits = Waits(400)
    return harness.Contestant(name, lambda: waits.timed(batches), lambda: None, waits)
both = [contestant("one"), contestant("other")]
taken = harness.measure(both, 3)
for each in both:
    assert all(abs(sum(w) / 1e9 / s - 1) < 0.02 for w, s in zip(each.waits.rounds, taken[each.name], strict=True))
print(json.dumps(both[0].details["tails"]))
"""
    tails = json.loads(printed(program)[0])
    assert tails["count"] == 3 * 399
    assert 0.0001 <= tails["p50"] < 0.004
    assert 0.005 <= tails["p99"] < 0.03 <= tails["p99.9"]
    assert all(0.03 <= longest < 1 for longest in tails["longest"]) and len(tails["longest"]) == 3
    assert all(0.02 <= first < 1 for first in tails["first"]) and len(tails["first"]) == 3


@pytest.mark.long
def test_waits_of_a_prefetching_loader_are_those_of_its_iterator() -> None:
    """Its workers are ahead. Whatever they do, the waits of the consumer add up to its epoch."""
    program = """
import importlib.util
if importlib.util.find_spec("torch") is None:
    raise SystemExit(77)
import time, torch
from loader_ways import Opened
from torch.utils.data import DataLoader
from waits import Waits
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        time.sleep(0.0005)
        return torch.zeros(8), index
options = {"num_workers": 2, "persistent_workers": True, "multiprocessing_context": "fork"}
loader = DataLoader(Slow(), 10, **options)
opened, waits = Opened(lambda: loader), Waits(400)
for _ in range(2):
    start = time.perf_counter()
    found = opened.epoch(waits)
    seconds = time.perf_counter() - start
print(found, list(map(len, waits.rounds)), 0.8 < waits.rounds[1].sum() / 1e9 / seconds <= 1)
"""
    done = benchmark_runs.program(program)
    if done.returncode != 77:
        assert done.stdout == "(400, 79800) [40, 40] True\n", done.stdout + done.stderr


TABLES = """
import tails, workloads
from harness import Measurement
from report_tables import tails as table
def measured(name, role, **found):
    details = {"role": role, **({"tails": found} if found else {})}
    return Measurement(name, workloads.READS[0], [1.0], 1, 1, "hot", details)
def of(p99, count=2000, **more):
    return {"count": count, "p50": 95.2e-6, "p99": p99, "longest": [2e-3, 4e-3, 3e-3], "first": [1.2], **more}
"""


def test_tables_compare_p99_with_that_of_the_best_peer() -> None:
    pytest.importorskip("matplotlib")
    program = """
print(table([
    measured("Loader", "ours", **of(2e-3, **{"p99.9": 3e-3})),
    measured("slow", "peer", **of(9e-3)),
    measured("fast", "peer", **of(4e-3)),
    measured("C loop", "limit", **of(1e-3)),
    measured("few", "peer", **{name: each for name, each in of(0, 60).items() if name != "p99"}),
    measured("fio", "limit"),
]))
print(tails.best_rival([measured("own code", "plain", **of(1.0))]).contestant)
print(repr(table([measured("Loader", "ours")])))
print(table([measured("Loader", "ours", **of(2e-3))]))
"""
    lines = printed(TABLES + program)
    header = "|  | p50 | p99 | p99.9 | longest of a round (of all) | first batch | batches |"
    later = "3.00 ms (4.00 ms) | 1.20 s |"
    assert lines == [
        f"{header} p99 / fast |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        f"| few | 95.2 µs |  |  | {later} 60 |  |",
        f"| C loop | 95.2 µs | 1.00 ms |  | {later} 2,000 |  |",
        f"| Loader | 95.2 µs | 2.00 ms | 3.00 ms | {later} 2,000 | 0.500 |",
        f"| fast | 95.2 µs | 4.00 ms |  | {later} 2,000 |  |",
        f"| slow | 95.2 µs | 9.00 ms |  | {later} 2,000 |  |",
        "own code",
        "''",
        header,
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        f"| Loader | 95.2 µs | 2.00 ms |  | {later} 2,000 |",
    ]
