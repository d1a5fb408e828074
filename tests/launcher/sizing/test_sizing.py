"""The smallest storage for a need, against the numbers of the FSx for Lustre guide."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smdp_launch.catalog.storage import lustre_types
from smdp_launch.diagnosis.verdict import diagnose
from smdp_launch.errors import ExitCode
from smdp_launch.sizing.choices import Choice, best, choices, lustre
from smdp_launch.sizing.measured import measured_mb_s
from smdp_launch.sizing.need import Need
from tests.conftest import Command
from tests.support.json_documents import the_document
from tests.support.numbers.run_events import metrics_of, run_events

#: Kind, MB/s that are needed, data in GB, EFA; then capacity in GiB, MB/s, and burst. None: no capacity.
GOLDEN: list[tuple[str, float, float, bool, tuple[int, float, float | None] | None]] = [
    ("SCRATCH_2 SSD 200", 240, 0, False, (1200, 240, 1560)),
    ("SCRATCH_2 SSD 200", 241, 0, False, (2400, 480, 3120)),
    ("SCRATCH_2 SSD 200", 480.5, 0, False, (4800, 960, 6240)),
    ("SCRATCH_2 SSD 200", 10, 1200, False, (1200, 240, 1560)),
    ("SCRATCH_2 SSD 200", 10, 1300, False, (2400, 480, 3120)),
    ("PERSISTENT_1 HDD 12", 50, 0, False, (6000, 72, None)),
    ("PERSISTENT_1 HDD 12", 73, 0, False, (12000, 144, None)),
    ("PERSISTENT_1 HDD 40", 72, 0, False, (1800, 72, None)),
    ("PERSISTENT_1 HDD 40", 100, 0, False, (3600, 144, None)),
    ("PERSISTENT_1 SSD 50", 240, 0, False, (4800, 240, None)),
    ("PERSISTENT_1 SSD 100", 240, 0, False, (2400, 240, None)),
    ("PERSISTENT_1 SSD 200", 240, 0, False, (1200, 240, None)),
    ("PERSISTENT_2 SSD 125", 150, 0, False, (1200, 150, 600)),
    ("PERSISTENT_2 SSD 250", 1500, 0, False, (7200, 1800, 3600)),
    ("PERSISTENT_2 SSD 500", 1500, 0, False, (4800, 2400, None)),
    ("PERSISTENT_2 SSD 1000", 1500, 0, False, (2400, 2400, None)),
    ("PERSISTENT_2 SSD 125", 150, 0, True, (38400, 4800, 19200)),
    ("PERSISTENT_2 SSD 250", 4801, 0, True, (38400, 9600, 19200)),
    ("PERSISTENT_2 SSD 500", 4800, 0, True, (9600, 4800, None)),
    ("PERSISTENT_2 SSD 1000", 4801, 0, True, (9600, 9600, None)),
    ("SCRATCH_2 SSD 200", 150, 0, True, None),
    ("PERSISTENT_1 HDD 12", 1e6, 0, False, None),
]


@pytest.mark.parametrize(("kind", "mb_s", "data", "efa", "expected"), GOLDEN)
def test_smallest_file_system_is_that_of_the_guide(
    kind: str, mb_s: float, data: float, efa: bool, expected: tuple[int, float, float | None] | None
) -> None:
    (one,) = (known for known in lustre_types() if known.name == kind)
    choice = lustre(one, Need(mb_s, 8, "as given", data or None), efa, {})
    assert (choice and (choice.capacity_gib, choice.mb_s, choice.burst_mb_s)) == expected


def named(found: list[Choice], name: str) -> Choice:
    return next(one for one in found if one.name == name)


def test_file_mode_waits_for_the_copy_of_all_data() -> None:
    file = named(choices(Need(100, 2, "as given", data_gb=50)), "File")
    assert file.first_batch_s == pytest.approx(300, abs=1)  # 50 GB in about 5 minutes
    assert file.carries


def test_small_objects_exceed_the_requests_of_a_prefix() -> None:
    assert named(choices(Need(1000, 2, "as given", object_mb=0.1)), "FastFile").carries is False
    assert named(choices(Need(1000, 2, "as given", object_mb=150)), "FastFile").carries is None


def test_efs_is_limited_by_host_and_by_file_system() -> None:
    assert named(choices(Need(600, 1, "as given")), "EFS").carries is False
    assert named(choices(Need(3000, 6, "as given")), "EFS").carries is True
    assert named(choices(Need(4000, 100, "as given")), "EFS").carries is False


def test_host_reads_no_more_than_a_client_of_lustre_can() -> None:
    found = choices(Need(20_000, 1, "as given"))
    assert {one.carries for one in found if one.capacity_gib is not None} == {False}
    assert best(found) is None
    assert best(choices(Need(20_000, 2, "as given"))) is not None


def test_price_decides_only_if_every_file_system_has_one() -> None:
    need = Need(1500, 4, "as given")
    prices = {one.name: 1.0 for one in lustre_types()} | {"SCRATCH_2 SSD 200": 0.1}
    cheapest = best(choices(need, prices=prices))
    assert cheapest is not None
    assert (cheapest.name, cheapest.monthly_usd) == ("FSx SCRATCH_2 SSD 200", pytest.approx(960))
    smallest = best(choices(need, prices={"SCRATCH_2 SSD 200": 0.1}))
    assert smallest is not None
    assert smallest.name == "FSx PERSISTENT_2 SSD 1000"


def test_measured_need_is_that_of_a_job_without_input_wait() -> None:
    step = {"input": 0.1, "forward": 0.1, "load_batches": 1, "load_s": 0.2, "load_bytes": 2e6, "load_workers": 1}
    verdict = diagnose(metrics_of(run_events(lambda _: step)))
    assert measured_mb_s(verdict) == pytest.approx(4 * 2 / 0.1)
    assert measured_mb_s(diagnose(metrics_of([]))) is None


def test_size_matches_its_schema(smdp_launch: Command, tmp_path: Path) -> None:
    prices = {
        "date": "2026-11-01",
        "source": "our contract",
        "prices": {"us-east-1": {"ml.p4d.24xlarge": 12.5}},
        "storage": {"us-east-1": {"SCRATCH_2 SSD 200": 0.5}},
    }
    (tmp_path / "prices.json").write_text(json.dumps(prices))
    given = ["--bytes-per-second", "1.5GB", "--hosts", "4", "--prices", str(tmp_path / "prices.json")]
    document = the_document(smdp_launch("size", *given, "--json"), "size")
    assert document["mb_per_second"] == 1500
    (priced,) = (one for one in document["choices"] if one["monthly_usd"] is not None)
    assert (priced["name"], priced["monthly_usd"]) == ("FSx SCRATCH_2 SSD 200", 4800)
    ran = smdp_launch("size", *given)
    assert ran.stdout.startswith("Smallest FSx for Lustre: PERSISTENT_2 SSD 1000 with 2400 GiB, 2400 MB/s")


def test_samples_and_their_size_give_the_rate(smdp_launch: Command) -> None:
    ran = smdp_launch("size", "--samples-per-second", "12000", "--sample-bytes", "110 kB", "--json")
    assert the_document(ran, "size")["mb_per_second"] == pytest.approx(1320)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bytes-per-second", "fast"],
        ["--bytes-per-second", "0"],
        ["--bytes-per-second", "1e30"],
        ["--samples-per-second", "5"],
        ["--samples-per-second", "nan", "--sample-bytes", "1kB"],
        ["nowhere.yaml", "--bytes-per-second", "1GB"],
        ["--hosts", "0"],
    ],
)
def test_invalid_need_is_a_usage_error(smdp_launch: Command, arguments: list[str]) -> None:
    ran = smdp_launch("size", *arguments)
    assert (ran.returncode, "Traceback" in ran.stderr) == (ExitCode.USAGE, False)
