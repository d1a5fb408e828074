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


def resolver(tmp_path: Path, messages: list[str], **more: object) -> Resolver:
    return Resolver(tmp_path / "hosts", messages.append, **{"deadline": 900.0, **more})  # type: ignore[arg-type]


def test_hosts_file_precedes_the_name_service(tmp_path: Path, messages: list[str]) -> None:
    (tmp_path / "hosts").write_text("# comment\n127.0.0.2 algo-1 algo-1.local # first\n::1 algo-2\n127.0.0.3\talgo-2\n")
    assert resolver(tmp_path, messages, lookup=never).first_address(TWO) == "127.0.0.2"
    assert read_hosts_file(tmp_path / "hosts")["algo-2"] == "127.0.0.3"


def test_debians_address_for_the_own_name_is_ignored(tmp_path: Path, messages: list[str]) -> None:
    (tmp_path / "hosts").write_text("127.0.1.1 algo-1\nrubbish algo-1\n")
    found = resolver(tmp_path, messages, lookup=lambda host: "10.0.0.1").first_address(TWO)
    assert found == "10.0.0.1"


def test_single_host_needs_no_name_service(tmp_path: Path, messages: list[str]) -> None:
    assert resolver(tmp_path, messages, lookup=never).first_address(["algo-1"]) == "127.0.0.1"


def test_name_that_resolves_late_is_found(tmp_path: Path, messages: list[str]) -> None:
    answers = iter([OSError("not yet"), OSError("not yet"), "10.0.0.7"])

    def late(host: str) -> str:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert resolver(tmp_path, messages, lookup=late).first_address(TWO) == "10.0.0.7"
    (line,) = messages
    assert re.fullmatch("waiting for host algo-1 to have an address, [0-9]+ s so far: not yet", line)


def test_unresolved_host_error_lists_all_hosts(tmp_path: Path, messages: list[str]) -> None:
    with pytest.raises(HostsError) as error:
        resolver(tmp_path, messages, deadline=0.3, lookup=never).first_address(TWO)
    assert "Host algo-1 could not be found" in str(error.value)
    assert "algo-1, algo-2" in str(error.value)
    assert "unknown name" in str(error.value)


def test_silent_name_service_fails_at_the_deadline(tmp_path: Path, messages: list[str]) -> None:
    answer = threading.Event()

    def silent(host: str) -> str:
        answer.wait()
        return "10.0.0.1"

    with pytest.raises(HostsError, match="does not answer"):
        resolver(tmp_path, messages, deadline=0.2, lookup=silent).first_address(TWO)
    answer.set()


def test_lookup_uses_the_systems_resolver() -> None:
    assert lookup("localhost") in ("127.0.0.1", "::1")
    with pytest.raises(OSError, match=r".+"):
        lookup("no-such-host.invalid")
