"""Planted in what training loops get: epochs that are repeated or lost, shares of other ranks, loops that end early."""

from planted.defect import HANG, Defect

DEFECTS = (
    Defect(
        "a-finished-epoch-gone-on-with",
        "G10",
        "ffrecord/order/cursor.py",
        "        return self._position == self._epoch(self._before).length\n",
        "        return False\n",
        ("test_course.py::test_saved_with_the_last_batch",),
    ),
    Defect(
        "what-workers-read-ahead-counts",
        "G10",
        "ffrecord/torch/samplers.py",
        "        reader = find_reader()\n        if reader is not None:\n",
        "        reader = find_reader()\n        if False:\n",
        ("test_epoch_rules.py::test_workers_read_ahead",),
    ),
    Defect(
        "an-epoch-said-late-not-heard",
        "G10",
        "ffrecord/torch/sampler_progress.py",
        "        return self.epoch is epoch and self._drawn is not None and self._sampler._drawn is None\n",
        "        return False\n",
        ("test_epoch_rules.py::test_workers_read_ahead",),
    ),
    Defect(
        "a-validation-goes-on-where-sanity-stopped",
        "G10",
        "ffrecord/order/cursor.py",
        "        if number == self._epoch_number and self._begun:\n            self._again = True\n",
        "        if False:\n            self._again = True\n",
        ("test_epoch_rules.py::test_every_loader_goes_by_the_rules",),
    ),
    Defect(
        "an-epoch-of-a-generator-repeated",
        "G10",
        "ffrecord/torch/progress.py",
        "        elif _is_next(state, now):\n",
        "        elif False:\n",
        ("test_torch_state.py::test_on_the_last_batch_the_epoch_is_finished",),
    ),
    Defect(
        "the-rank-of-when-it-was-made",
        "G10",
        "ffrecord/torch/distributed.py",
        "        cursor.share(*found)\n        return True\n",
        "        return True\n",
        ("test_late_ranks.py::test_made_before_and_iterated_after",),
    ),
    Defect(
        "an-unknown-rank-taken-for-rank-0",
        "G10",
        "ffrecord/torch/distributed.py",
        "            if provisional:\n                return False\n            raise\n",
        "            return False\n",
        ("test_late_ranks.py::test_the_number_of_ranks_is_known_before_the_rank",),
    ),
    Defect(
        "a-loop-ended-by-a-stop-iteration",
        "G8",
        "ffrecord/torch/stop_iteration.py",
        "        if isinstance(error, StopIteration):\n",
        "        if isinstance(error, StopAsyncIteration):\n",
        ("test_user_errors.py::test_a_dataset_that_stops",),
    ),
    Defect(
        "an-exception-lost-on-its-way",
        "G8",
        "ffrecord/torch/worker_queues.py",
        "        super().put(_make_message(obj), block, timeout)\n",
        "        super().put(obj, block, timeout)\n",
        ("test_user_errors.py::test_an_exception_that_does_not_pickle",),
        HANG,
    ),
)
