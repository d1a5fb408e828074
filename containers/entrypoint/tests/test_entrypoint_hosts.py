from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from smdp_entrypoint.contract.errors import HostsError
from smdp_entrypoint.control.hosts import Resolver, lookup, read_hosts_file

TWO = ["algo-1", "algo-2"]


def never(host: str) -> str:
    raise OSError("unknown name")


def resolver(tmp_path: Path, said: list[str], **more: object) -> Resolver:
    return Resolver(tmp_path / "hosts", said.append, **{"deadline": 900.0, **more})  # type: ignore[arg-type]


def test_the_hosts_file_goes_before_the_name_service(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "hosts").write_text("# comment\n127.0.0.2 algo-1 algo-1.local # first\n::1 algo-2\n127.0.0.3\talgo-2\n")
    assert resolver(tmp_path, said, lookup=never).first_address(TWO) == "127.0.0.2"
    assert read_hosts_file(tmp_path / "hosts")["algo-2"] == "127.0.0.3"


def test_the_address_that_debian_gives_a_machines_own_name_is_not_used(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "hosts").write_text("127.0.1.1 algo-1\nrubbish algo-1\n")
    found = resolver(tmp_path, said, lookup=lambda host: "10.0.0.1").first_address(TWO)
    assert found == "10.0.0.1"


def test_one_host_alone_needs_no_name_service(tmp_path: Path, said: list[str]) -> None:
    assert resolver(tmp_path, said, lookup=never).first_address(["algo-1"]) == "127.0.0.1"


def test_a_name_that_comes_late_is_found(tmp_path: Path, said: list[str]) -> None:
    answers = iter([OSError("not yet"), OSError("not yet"), "10.0.0.7"])

    def late(host: str) -> str:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert resolver(tmp_path, said, lookup=late).first_address(TWO) == "10.0.0.7"
    (line,) = said
    assert re.fullmatch("waiting for host algo-1 to have an address, [0-9]+ s so far: not yet", line)


def test_after_the_deadline_the_missing_host_is_named_among_all(tmp_path: Path, said: list[str]) -> None:
    with pytest.raises(HostsError) as error:
        resolver(tmp_path, said, deadline=0.3, lookup=never).first_address(TWO)
    assert "Host algo-1 could not be found" in str(error.value)
    assert "algo-1, algo-2" in str(error.value)
    assert "unknown name" in str(error.value)


def test_a_name_service_that_does_not_answer_ends_at_the_deadline(tmp_path: Path, said: list[str]) -> None:
    answer = threading.Event()

    def silent(host: str) -> str:
        answer.wait()
        return "10.0.0.1"

    with pytest.raises(HostsError, match="does not answer"):
        resolver(tmp_path, said, deadline=0.2, lookup=silent).first_address(TWO)
    answer.set()


def test_the_systems_look_up() -> None:
    assert lookup("localhost") in ("127.0.0.1", "::1")
    with pytest.raises(OSError, match=r".+"):
        lookup("no-such-host.invalid")
