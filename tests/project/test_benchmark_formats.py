"""bench_formats.py runs, records what it measured on, and its report is made."""

import re
from pathlib import Path

import benchmark_runs
import pytest


@pytest.fixture(scope="module")
def formats_smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What bench_formats.py --smoke prints, and the file of its results."""
    return benchmark_runs.smoke("formats", tmp_path_factory.mktemp("formats"))


@pytest.mark.long
def test_formats_results_have_context_and_rounds(formats_smoke: tuple[str, Path]) -> None:
    printed, out = formats_smoke
    results = benchmark_runs.results(out)
    assert {result["workload"]["kind"] for result in results} >= {"Members", "Stream", "Examples", "Conversions"}
    for result in results:
        assert len(result["seconds"]) == 5
        assert result["contestant"] in printed
        if result["workload"]["kind"] in {"Members", "Examples", "Contained"}:
            benchmark_runs.check_tails(result)


@pytest.mark.long
@pytest.mark.parametrize(
    "figure",
    [
        r"zip: ZipReader.read / zipfile.read +\S+ \(\S+\) +>= 9 ",
        r"TFRecord, 4 KiB: stream_tfrecord / tfrecord +\S+ \(\S+\) +>= 2 ",
        r"Examples, 16 floats: ExampleParser.parse_batch / google.protobuf, to arrays +\S+ \(\S+\) +>= 3 ",
        r"lmdb: convert / DatasetWriter, from memory +\S+ \(\S+\) +>= 0.7 ",
    ],
    ids=["zip", "TFRecord", "Examples", "lmdb"],
)
def test_formats_print_their_figures(formats_smoke: tuple[str, Path], figure: str) -> None:
    printed, _ = formats_smoke
    if "lmdb: lmdb is not installed, not measured" in printed and figure.startswith("lmdb"):
        pytest.skip("lmdb is not installed, not measured")
    assert re.search(figure, printed), figure


@pytest.mark.long
def test_report_of_formats(formats_smoke: tuple[str, Path], tmp_path: Path) -> None:
    made = benchmark_runs.reported(tmp_path, "formats.md", formats_smoke[1])
    assert "### Figures of other formats and their targets" in made and "ZipReader.read" in made
    assert "#### 20 members of a stored zip, 3 kB, batches of 20: waits for a batch" in made
