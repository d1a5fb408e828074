"""Simulated hosts use the adapters that the engine built on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

import smdp_engine.adapters
from smdp_launch.localcloud.environment import adapter_cache, host_environment, server_environment

_HOME = {"HOME": "/home/ann"}


@pytest.mark.parametrize(
    "variables",
    [
        _HOME,
        {**_HOME, "XDG_CACHE_HOME": "/xdg"},
        {**_HOME, "XDG_CACHE_HOME": "relative"},
        {**_HOME, "SMDP_ADAPTER_CACHE": "~/adapters"},
        {**_HOME, "SMDP_ADAPTER_CACHE": "adapters"},
    ],
)
def test_hosts_use_the_cache_and_the_compiler_of_the_user(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SMDP_ADAPTER_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**variables, "CXX": "g++-12"}.items():
        monkeypatch.setenv(name, value)
    folder = str(smdp_engine.adapters.cache_folder().parent)
    assert adapter_cache() == Path(folder)
    for environment in (server_environment(), host_environment()):
        assert (environment["SMDP_ADAPTER_CACHE"], environment["CXX"]) == (folder, "g++-12")


def test_without_a_home_folder_hosts_have_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SMDP_ADAPTER_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "nowhere")
    assert "SMDP_ADAPTER_CACHE" not in host_environment()
