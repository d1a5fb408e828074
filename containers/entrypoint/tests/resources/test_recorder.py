"""The event `resources` of a real job, and its failures."""

from __future__ import annotations

import json
from typing import Any, Callable

import pytest
from entrypoint_support.host import Host

from smdp_entrypoint.resources.recorder import Recorder

WORK = """
import os, time
end = time.process_time() + 0.5
while time.process_time() < end:
    pass
data = bytearray(30_000_000)
if not os.fork():
    end = time.process_time() + 0.25
    while time.process_time() < end:
        pass
    os._exit(0)
os.wait()
while not os.path.exists("go"):
    time.sleep(0.01)
"""


def test_a_job_reports_its_processor_time_with_that_of_exited_processes(
    host: Host, until: Callable[[Callable[[], Any], str], Any]
) -> None:
    host.job(WORK)
    host.config("inputdataconfig.json", {"train": {"TrainingInputMode": "File"}})
    host.start(SMDP_TIMING_S="0.2", SMDP_WORKERS_PER_HOST="2")
    until(lambda: sum(event["workers_cpu_s"] for event in host.events("resources")) >= 1.5 - 0.05, "all of the work")
    host.code("go", "")
    assert host.wait() == 0
    events = host.events("resources")
    assert len(events) >= 2
    # No time counts twice after the exit. Python's start and the wait for the file are in it.
    assert sum(event["workers_cpu_s"] for event in events) <= 1.5 + 2
    assert max(event.get("workers_memory", 0) for event in events) > 2 * 30_000_000
    assert {event["channel_train_mode"] for event in events} == {"File"}
    for event in events:
        assert event["host"] == "algo-1"
        assert 0 < event["memory_used"] < event["memory_total"]
        assert event["cores"] > 0
        assert event["cpu_s"] >= 0


def test_a_short_job_reports_once_and_before_its_last_line(host: Host) -> None:
    host.job("print('ok')")
    assert host.run() == 0
    names = [json.loads(line.partition("] ")[2])["event"] for line in host.lines if '{"smdp_event":' in line]
    assert names == ["workers_started", "resources"]
    assert host.lines[-1] == "[algo-1] all workers exited successfully"


def test_zero_turns_the_measurement_off(host: Host) -> None:
    host.job("print('ok')")
    assert host.run(SMDP_TIMING_S="0") == 0
    assert host.events("resources") == []


@pytest.mark.parametrize("value", ["fast", "-1", "nan"])
def test_an_interval_that_is_no_number_of_seconds_fails_the_job(host: Host, value: str) -> None:
    host.job("print('ok')")
    assert host.run(SMDP_TIMING_S=value) == 1
    assert f"SMDP_TIMING_S must be a number of seconds, found {value!r}." in host.failure


def test_a_failed_job_reports_its_resources_too(host: Host) -> None:
    host.job("raise ValueError('x')")
    assert host.run() == 1
    assert len(host.events("resources")) == 1


def test_a_worker_cannot_send_the_event_of_its_host(host: Host) -> None:
    host.job("""print('{"smdp_event": 1, "event": "resources", "time": 1.5, "host": "algo-1"}')""")
    assert host.run(SMDP_TIMING_S="0") == 0
    assert host.events("resources") == []


def test_a_failure_of_the_measurement_is_one_message(messages: list[str]) -> None:
    def create() -> Any:
        raise ZeroDivisionError("a bug")

    recorder = Recorder(5.0, create, lambda name, **fields: None, messages.append)
    recorder.start()
    recorder.finish()
    assert messages == ["the resources of this host are not measured: ZeroDivisionError: a bug"]
