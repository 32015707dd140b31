"""Ray, started once for a file of tests, and stopped. The name of the folder is not `ray`, which would be imported."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

THERE = find_spec("ray") is not None and find_spec("pyarrow") is not None
collect_ignore_glob = [] if THERE else ["test_*.py"]

# Before Ray is imported: it asks the network for nothing and leaves nothing in the home directory.
os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_TASK_MAX_RETRIES": "-1",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
}
# Of attributes that Ray itself sets.
OWN_WARNING = "ignore:.* is deprecated:DeprecationWarning:ray.data.context"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "ray_side" in str(item.path):
            item.add_marker(pytest.mark.filterwarnings(OWN_WARNING))
            item.add_marker(pytest.mark.unsanitized("programs of others do not run under it"))


@pytest.fixture(scope="module")
def started_ray() -> Iterator[None]:
    """Two CPUs of Ray on this machine."""
    import ray
    import ray.data
    from ray_builders import quiet

    # Sockets have short names.
    directory = tempfile.mkdtemp(prefix="ffr-")
    before = signal.getsignal(signal.SIGTERM)  # Ray sets another, with which forked children end otherwise
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        object_store_memory=100 << 20,
        log_to_driver=False,
        logging_level="error",
        _temp_dir=directory,
    )
    try:
        quiet()
        yield
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, before)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def url() -> Iterator[str]:
    """Of a dataset in the memory of this process, where nothing is yet."""
    import fsspec

    yield "memory://bucket/dataset"
    store = fsspec.filesystem("memory")
    if store.exists("/bucket"):
        store.rm("/bucket", recursive=True)
