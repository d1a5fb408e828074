"""The network between the hosts and between the GPUs: NCCL, its plugin for EFA, and their variables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from smdp_launch.catalog.engines import TORCH_DISTRIBUTED
from smdp_launch.catalog.fabric import nccl_need
from smdp_launch.catalog.frameworks import parts
from smdp_launch.catalog.instances import Instance, instance
from smdp_launch.diagnostics import Severity
from smdp_launch.rules.base import image_contents
from smdp_launch.rules.base.facts import Facts, Problem, rule

_ENVIRONMENT = "environment"
_TYPE = ("compute.instance_type", "compute.instance_count", "engine")
_OFF = frozenset({"0", "false", "no", ""})
_REMOVE = "remove it"


class _Host(NamedTuple):
    """What a variable's effect depends on; a fact is None if it is not documented."""

    type_: Instance
    several: bool
    efa: bool | None
    nvlink: bool | None

    @property
    def name(self) -> str:
        return self.type_.name


def _host(facts: Facts) -> _Host | None:
    type_ = instance(facts.spec.compute.instance_type)
    if type_ is None or facts.spec.engine not in TORCH_DISTRIBUTED:
        return None
    efa = type_.efa_interfaces > 0 if type_.is_documented("efa_interfaces") else None
    nvlink = str(type_.fabric).startswith("NV") if type_.is_documented("fabric") else None
    return _Host(type_, facts.spec.compute.instance_count > 1, efa, nvlink)


@rule(
    "SMDP326",
    *_TYPE,
    "image",
    "framework.name",
    "framework.version",
    "framework.transformers",
    severity=Severity.WARNING,
)
def image_serves_fabric(facts: Facts) -> Iterator[Problem]:
    host = _host(facts)
    need = nccl_need(host.name) if host is not None and host.several and facts.spec.engine == "nccl" else None
    cuda = image_contents.cuda(facts)
    if host is None or need is None:
        return
    where = ("image",) if facts.spec.image is not None else ("framework", "version")
    if cuda is not None and parts(cuda) < parts(need.cuda):
        message = f"NCCL on several {host.name} needs CUDA {need.cuda} or later, and the image has {cuda}"
        yield Problem(where, message, f"use an image with CUDA {need.cuda} or later")
        return
    has = image_contents.nccl(facts)
    if has is not None and has.nccl is not None and parts(has.nccl) < parts(need.nccl):
        message = f"EFA of {host.name} needs NCCL {need.nccl} or later, and AWS's image has {has.nccl}"
        yield Problem(where, message, f"use an image with NCCL {need.nccl} or later")
    elif has is not None and has.plugin is not None and parts(has.plugin) < parts(need.plugin):
        message = f"EFA of {host.name} needs aws-ofi-nccl {need.plugin} or later, and AWS's image has {has.plugin}"
        yield Problem(where, message, f"use an image with aws-ofi-nccl {need.plugin} or later")


@rule("SMDP327", *_TYPE, _ENVIRONMENT, severity=Severity.WARNING)
def variables_that_harm(facts: Facts) -> Iterator[Problem]:
    host = _host(facts)
    for name, value in facts.spec.environment.items() if host is not None else ():
        problem = _harm(name, value, host) if host is not None else None
        if problem is not None:
            yield Problem((_ENVIRONMENT, name), f"{name}: {problem}", _REMOVE, on_key=True, remove=True)


def _harm(name: str, value: str, host: _Host) -> str | None:
    """What the variable does on ``host``; None if it does no harm."""
    text = value.strip().lower()
    if name.startswith("RDMAV_"):
        return "AWS's guide for EFA forbids it, because newer kernels break with it"
    if name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") and re.fullmatch(r"=?(eth|ens|enp)\w*|lo|docker0", text):
        return "the interface has another name on many hosts, and the launcher sets the right one"
    if text in _OFF and re.fullmatch(r"(TORCH_)?NCCL_ASYNC_ERROR_HANDLING", name):
        return "if a rank fails, the others wait for it until `max_run`"
    if name == "CUDA_VISIBLE_DEVICES":
        return "it hides GPUs, and the job starts a worker for each GPU of the host"
    if name == "CUDA_LAUNCH_BLOCKING" and text not in _OFF:
        return "every operation waits for the GPU, so that exchange and computation do not overlap"
    return _harm_to_nccl(name, text, host)


def _harm_to_nccl(name: str, text: str, host: _Host) -> str | None:
    if name == "NCCL_PROTO":
        return "NCCL cannot choose the protocol for each size; only aws-ofi-nccl up to 1.5 needs simple"
    if name == "NCCL_P2P_DISABLE" and text not in _OFF and host.nvlink:
        return f"the GPUs of {host.name} exchange through the host's memory, not over {host.type_.fabric}"
    if name == "NCCL_SHM_DISABLE" and text not in _OFF:
        return "GPUs without a direct connection exchange over the network, not through the host's memory"
    if not host.several or host.efa is None:
        return None
    return _harm_between_hosts(name, text, host.name) if host.efa else _efa_absent(name, text, host.name)


def _harm_between_hosts(name: str, text: str, type_: str) -> str | None:
    if name == "NCCL_IB_DISABLE" and text not in _OFF:
        return "it has no effect: NCCL reaches EFA through aws-ofi-nccl, not through its own InfiniBand"
    if (name == "NCCL_NET" and text == "socket") or (name == "NCCL_NET_PLUGIN" and text in ("none", "")):
        return f"NCCL uses TCP, not the EFA of {type_}"
    if name == "FI_PROVIDER" and text != "efa":
        return f"NCCL's plugin uses the provider {text or 'of no name'}, not the EFA of {type_}"
    if name in ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"):
        return "it is for TCP, and has no effect on EFA"
    return None


def _efa_absent(name: str, text: str, type_: str) -> str | None:
    if name == "FI_PROVIDER" and text == "efa":
        return f"{type_} has no EFA, so NCCL's plugin finds no network"
    return None


@rule("SMDP328", *_TYPE, _ENVIRONMENT, severity=Severity.WARNING)
def gpudirect_is_available(facts: Facts) -> Iterator[Problem]:
    host = _host(facts)
    if host is None or not host.type_.is_documented("gpudirect_rdma") or host.type_.gpudirect_rdma:
        return
    for name, value in facts.spec.environment.items():
        if value.strip().lower() in _OFF:
            continue
        if name == "FI_EFA_USE_DEVICE_RDMA":
            message = f"{name}: the network of {host.name} has no GPUDirect RDMA, and libfabric 1.18 and later fail"
            yield Problem((_ENVIRONMENT, name), message, _REMOVE, on_key=True, remove=True)
        elif name in ("NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ"):
            message = f"{name}: it has no effect, because the network of {host.name} has no GPUDirect RDMA"
            yield Problem((_ENVIRONMENT, name), message, _REMOVE, on_key=True, remove=True)


@rule("SMDP329", *_TYPE, severity=Severity.WARNING)
def hosts_have_efa(facts: Facts) -> Iterator[Problem]:
    host = _host(facts)
    if host is None or not host.several or host.efa is not False or facts.spec.engine != "nccl":
        return
    rate = host.type_.network_gbit
    message = f"{host.name} has no EFA: NCCL exchanges between the hosts over TCP, with at most {rate} Gbit/s"
    help_ = "use one host with more GPUs, or a type with EFA (smdp-launch catalog instances --engine nccl)"
    yield Problem(("compute", "instance_type"), message, f"{help_}; if that is fast enough, silence this")


@rule("SMDP330", *_TYPE, severity=Severity.WARNING)
def gloo_on_gpus(facts: Facts) -> Iterator[Problem]:
    host = _host(facts)
    if host is not None and facts.spec.engine == "gloo":
        message = f"Gloo sums in the memory of the host, so the {host.type_.gpu} of {host.name} wait for copies"
        yield Problem(("engine",), message, "write `engine: nccl`, or choose a type without GPUs", replacement="nccl")
