"""Jobs with their own command: which command runs, its files and variables, and its network for fixed ports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.isolation import needs_networks
from tests.support.services.cloud import BUCKET, Cloud
from tests.support.waiting import wait_for

SPECIFICATION = {"TrainingImage": "image", "TrainingInputMode": "File"}
FIXED_PORT = 7777

#: Each host waits for its job's other host on the same port of all its addresses.
MEETS = f"""
import json, socket, sys, time
hosts = json.load(open("/opt/ml/input/config/resourceconfig.json"))
if hosts["current_host"] == "algo-1":
    with socket.create_server(("", {FIXED_PORT})) as listener:
        print("listens at", socket.gethostbyname("algo-1"), hosts["network_interface_name"], flush=True)
        peer, _ = listener.accept()
        print("heard", peer.recv(99).decode(), flush=True)
        peer.recv(1)
else:
    listener = socket.create_server(("", {FIXED_PORT}))
    while True:
        try:
            peer = socket.create_connection(("algo-1", {FIXED_PORT}))
            break
        except OSError:
            time.sleep(0.05)
    peer.send(sys.argv[1].encode())
    while not __import__("os").path.exists("/opt/ml/output/go"):
        time.sleep(0.05)
"""


def start(
    cloud: Cloud, name: str, *command: str, arguments: tuple[str, ...] = (), hosts: int = 1, **more: object
) -> str:
    fields = {"ContainerEntrypoint": list(command), "ContainerArguments": list(arguments)}
    specification = SPECIFICATION | {name: value for name, value in fields.items() if value}
    return cloud.start(name, "", hosts=hosts, AlgorithmSpecification=specification, **more)


def channel(cloud: Cloud, script: str) -> list[dict[str, object]]:
    """A channel `code` with the script as `run.py`."""
    prefix = f"commands/{abs(hash(script))}"
    cloud.s3.put_object(Bucket=BUCKET, Key=f"{prefix}/run.py", Body=script.encode())
    source = {
        "S3DataType": "S3Prefix",
        "S3Uri": f"s3://{BUCKET}/{prefix}/",
        "S3DataDistributionType": "FullyReplicated",
    }
    return [{"ChannelName": "code", "DataSource": {"S3DataSource": source}}]


def test_container_entrypoint_and_arguments_replace_train(shared_cloud: Cloud) -> None:
    script = "import os, sys; open('/opt/ml/model/m', 'w').write('x'); print('ran', sys.argv[1:], sys.executable)"
    code = channel(shared_cloud, script)
    start(
        shared_cloud,
        "own-command",
        "/bin/bash",
        "-c",
        arguments=('touch /opt/ml/input/marker && python3 /opt/ml/input/data/code/run.py "$0" "$HOME"', "a b"),
        InputDataConfig=code,
    )
    job = shared_cloud.wait("own-command")
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    host = shared_cloud.state_dir / "jobs/own-command/hosts/algo-1"
    assert shared_cloud.await_log("own-command", "ran") == f"ran ['a b', '/tmp'] {host}/python/bin/python3"
    assert job["AlgorithmSpecification"]["ContainerEntrypoint"] == ["/bin/bash", "-c"]
    assert "out/own-command/output/model.tar.gz" in shared_cloud.keys("out/own-command/")


def test_arguments_without_entrypoint_follow_the_image_entrypoint(shared_cloud: Cloud) -> None:
    start(shared_cloud, "arguments-alone", arguments=("echo", "hello"))
    assert shared_cloud.wait("arguments-alone")["TrainingJobStatus"] == "Completed"
    assert "hello" in shared_cloud.log("arguments-alone")
    shared_cloud.start(
        "argument-train",
        "print('the entrypoint ran')",
        AlgorithmSpecification=SPECIFICATION | {"ContainerArguments": ["train"]},
    )
    assert shared_cloud.wait("argument-train")["TrainingJobStatus"] == "Completed"
    shared_cloud.await_log("argument-train", "the entrypoint ran")


def test_a_failing_command_gives_its_exit_code_and_its_failure_file(shared_cloud: Cloud) -> None:
    start(shared_cloud, "command-fails", "sh", "-c", arguments=("echo why > /opt/ml/output/failure; exit 9",))
    assert shared_cloud.wait("command-fails")["FailureReason"] == "AlgorithmError: why, exit code: 9"
    start(shared_cloud, "no-such-command", "/no/such/program")
    assert "/no/such/program" in shared_cloud.wait("no-such-command")["FailureReason"]


def test_a_stopped_command_gets_sigterm(shared_cloud: Cloud) -> None:
    script = 'trap "echo got SIGTERM; exit 0" TERM; echo waits; while :; do sleep 0.05; done'
    start(shared_cloud, "command-stopped", "bash", "-c", arguments=(script,))
    shared_cloud.await_log("command-stopped", "waits")
    shared_cloud.sagemaker.stop_training_job(TrainingJobName="command-stopped")
    assert shared_cloud.wait("command-stopped")["TrainingJobStatus"] == "Stopped"
    assert "got SIGTERM" in shared_cloud.log("command-stopped")


@needs_networks
def test_two_jobs_use_one_fixed_port(shared_cloud: Cloud) -> None:
    code = channel(shared_cloud, MEETS)
    names = ["fixed-port-a", "fixed-port-b"]
    for name in names:
        command = ("python3", "/opt/ml/input/data/code/run.py", name)
        start(shared_cloud, name, *command, hosts=2, InputDataConfig=code)
    for name in names:
        shared_cloud.await_log(name, f"heard {name}")
    # Both jobs use the port now: the second hosts wait for `go`, and the first hosts wait for the second ones.
    for name in names:
        (shared_cloud.output(name, "algo-2") / "go").touch()
    for name in names:
        assert shared_cloud.wait(name)["TrainingJobStatus"] == "Completed"
        assert "listens at 10.0.0.1 eth0" in shared_cloud.log(name)


@needs_networks
def test_the_entrypoint_trains_on_a_network_of_the_jobs_own(shared_cloud: Cloud) -> None:
    script = """
        import socket
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        ranks = torch.tensor([dist.get_rank() + 1.0])
        dist.all_reduce(ranks)
        print("sum", ranks.item(), sorted(name for _, name in socket.if_nameindex()), flush=True)
    """
    environment = {"SMDP_WORKERS_PER_HOST": "1", "SMDP_LOCAL_NETWORK": "own"}
    job = shared_cloud.run("own-network", script, hosts=2, Environment=environment)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert sum("sum 3.0 ['eth0', 'lo']" in line for line in shared_cloud.log("own-network")) == 2


@needs_networks
def test_hosts_of_the_mirrored_strategy_listen_on_one_port(shared_cloud: Cloud) -> None:
    script = """
        import json, os, socket, time
        cluster = json.loads(os.environ["TF_CONFIG"])
        addresses = [one.split(":") for one in cluster["cluster"]["worker"]]
        listener = socket.create_server(("", int(addresses[cluster["task"]["index"]][1])))
        for host, port in addresses:
            while True:
                try:
                    socket.create_connection((host, int(port))).close()
                    break
                except OSError:
                    time.sleep(0.05)
        print("reached", len(addresses), "from", cluster["task"], flush=True)
        time.sleep(600)
    """
    settings = shared_cloud.request("mirrored", script)["HyperParameters"]
    flag = {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}
    shared_cloud.start("mirrored", script, hosts=2, HyperParameters=settings | flag)
    for index in (0, 1):
        shared_cloud.await_log("mirrored", f"reached 2 from {{'index': {index}, 'type': 'worker'}}")
    shared_cloud.sagemaker.stop_training_job(TrainingJobName="mirrored")
    assert shared_cloud.wait("mirrored")["TrainingJobStatus"] == "Stopped"


@pytest.mark.skipif(not Path("/etc/environment").is_file(), reason="this machine has no /etc/environment")
def test_etc_environment_written_by_a_command_stays_in_the_host(shared_cloud: Cloud) -> None:
    before = Path("/etc/environment").read_bytes()
    arguments = ("env >> /etc/environment && grep -c TRAINING_JOB_NAME /etc/environment",)
    start(shared_cloud, "logins", "sh", "-c", arguments=arguments)
    assert shared_cloud.wait("logins")["TrainingJobStatus"] == "Completed"
    assert shared_cloud.log("logins") == ["1"]
    assert Path("/etc/environment").read_bytes() == before


#: Prints whether a host reaches the local cloud and the proxy, and its proxy variables.
REACHES = """
import os, socket
def reach(host, port):
    try:
        socket.create_connection((host, port), timeout=5).close()
        return "open"
    except OSError as error:
        return type(error).__name__
print("cloud", reach("127.0.0.1", int(os.environ["CLOUD"])), "proxy", reach("127.0.0.2", 3128),
      "variables", sorted(name for name in os.environ if "proxy" in name.lower()), flush=True)
"""


@needs_networks
@pytest.mark.parametrize("isolated", [False, True])
def test_network_isolation_allows_only_the_other_hosts(shared_cloud: Cloud, isolated: bool) -> None:
    name, port = f"isolation-{isolated}".lower(), shared_cloud.endpoint.url.rpartition(":")[2]
    start(
        shared_cloud,
        name,
        *("python3", "/opt/ml/input/data/code/run.py"),
        InputDataConfig=channel(shared_cloud, REACHES),
        EnableNetworkIsolation=isolated,
        Environment={"CLOUD": port},
    )
    assert shared_cloud.wait(name)["TrainingJobStatus"] == "Completed"
    proxies = ["HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"]
    reached, variables = ("ConnectionRefusedError", []) if isolated else ("open", proxies)
    assert f"cloud {reached} proxy {reached} variables {variables}" in shared_cloud.log(name)


@needs_networks
def test_the_log_names_the_proxy_variables_that_are_replaced(shared_cloud: Cloud) -> None:
    line = "[algo-1] http_proxy: replaced by the HTTP proxy of the job's own network."
    for name, isolated, proxy in (("own-proxy", False, "http://127.0.0.2:3128"), ("no-proxy", True, "http://mine:1")):
        command = ("sh", "-c", "echo proxy $http_proxy")
        environment = {"http_proxy": "http://mine:1"}
        start(shared_cloud, name, *command, EnableNetworkIsolation=isolated, Environment=environment)
        assert shared_cloud.wait(name)["TrainingJobStatus"] == "Completed"
        assert f"proxy {proxy}" in shared_cloud.log(name)
        assert (line in shared_cloud.log(name)) is not isolated


#: Addresses of this machine, of a cloud's metadata services, and a multicast address.
BARRED = (
    *("127.0.0.1:8080", "[::1]:8080", "[::ffff:127.0.0.1]:8080", "[::ffff:0.0.0.0]:8080", "192.0.2.9:8080"),
    *("169.254.169.254:80", "[::ffff:169.254.169.254]:80", "[fd00:ec2::254]:80", "224.0.0.1:80"),
)

#: In network namespaces of its own: a web server at an address that is not loopback, and a host that has only a relay.
RELAYED = """
import ctypes, http.server, os, socket, subprocess, sys, threading, time, urllib.request
from smdp_launch.localcloud.isolation import relay
class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = f"{self.path} {self.headers['Host']} {self.headers['Connection']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
def batch(*commands):
    subprocess.run(["ip", "-batch", "-"], text=True, check=True, input="\\n".join(commands))
def serve(address):
    server = http.server.ThreadingHTTPServer((address, 8080), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
reader, writer = os.pipe()
other = os.fork()
if other == 0:
    ctypes.CDLL(None).unshare(0x40000000)
    os.write(writer, b"x")
    while "inside" not in [name for _, name in socket.if_nameindex()]:
        time.sleep(0.01)
    batch("link set lo up", "address add 192.0.2.1/24 dev inside", "link set inside up")
    serve("192.0.2.1")
    time.sleep(60)
    os._exit(0)
os.read(reader, 1)
batch("link set lo up", f"link add outside type veth peer name inside netns {other}",
      "address add 192.0.2.9/24 dev outside", "link set outside up")
if os.fork() == 0:
    serve("192.0.2.9"), serve("127.0.0.1")
    time.sleep(60)
    os._exit(0)
with relay.Relay() as outside:
    ctypes.CDLL(None).unshare(0x40000000)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    outside.serve("127.0.0.1:8080", "127.0.0.2:3128")
def through_proxy(request):
    with socket.create_connection(("127.0.0.2", 3128), timeout=20) as proxy:
        proxy.sendall(request)
        answer = b""
        while part := proxy.recv(4096):
            answer += part
            if answer.endswith(b"established\\r\\n\\r\\n"):
                proxy.sendall(b"GET /tunnel HTTP/1.1\\r\\nHost: inner\\r\\nConnection: close\\r\\n\\r\\n")
        return answer.decode()
for _ in range(400):
    try:
        through_proxy(b"GET http://192.0.2.1:8080/ HTTP/1.1\\r\\n\\r\\n").index("200")
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({})).open("http://127.0.0.1:8080/direct")
        break
    except (OSError, ValueError):
        time.sleep(0.05)
print(direct.read().decode())
asks = b"GET http://192.0.2.1:8080/a?b=c HTTP/1.1\\r\\nHost: 192.0.2.1\\r\\nProxy-Connection: keep-alive\\r\\n\\r\\n"
print(through_proxy(asks).rpartition("\\r\\n")[2])
print(through_proxy(b"CONNECT 192.0.2.1:8080 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n").rpartition("\\r\\n")[2])
# What a server sends after its client has sent all.
with socket.create_connection(("127.0.0.2", 3128), timeout=20) as half:
    half.sendall(b"CONNECT 192.0.2.1:8080 HTTP/1.1\\r\\n\\r\\n")
    half.recv(4096)
    half.sendall(b"GET /half HTTP/1.1\\r\\nHost: half\\r\\nConnection: close\\r\\n\\r\\n")
    half.shutdown(socket.SHUT_WR)
    print(b"".join(iter(lambda: half.recv(4096), b"")).decode().rpartition("\\r\\n")[2])
for target in sys.argv[1:]:
    print(target, through_proxy(f"CONNECT {target} HTTP/1.1\\r\\n\\r\\n".encode()).partition("\\r\\n")[0])
for request in (b"GET http://localhost:8080/ HTTP/1.1",
                b"GET / HTTP/1.1", b"GET ftp://192.0.2.1/ HTTP/1.1", b"nonsense",
                b"CONNECT 192.0.2.1:99999 HTTP/1.1", b"CONNECT " + b"a" * 70 + b".example:443 HTTP/1.1",
                b"CONNECT a..example:443 HTTP/1.1", b"CONNECT 192.0.2.1:1 HTTP/1.1"):
    print(through_proxy(request + b"\\r\\n\\r\\n").partition("\\r\\n")[0])
"""


@needs_networks
def test_proxy_connects_to_other_machines_only() -> None:
    command = [
        "unshare",
        "--map-root-user",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        sys.executable,
        "-c",
        RELAYED,
        *BARRED,
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.stdout.splitlines() == [
        "/direct 127.0.0.1:8080 close",
        "/a?b=c 192.0.2.1 close",
        "/tunnel inner close",
        "/half half close",
        *(f"{target} HTTP/1.1 403 Forbidden" for target in BARRED),
        "HTTP/1.1 403 Forbidden",
        *["HTTP/1.1 400 Bad Request"] * 4,
        *["HTTP/1.1 502 Bad Gateway"] * 2,
        "HTTP/1.1 504 Gateway Timeout",
    ], found.stderr


@needs_networks
def test_the_network_ends_with_the_job(shared_cloud: Cloud) -> None:
    def switches() -> set[str]:
        return {path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if b"br0 type bridge" in _read(path)}

    before = switches()
    ends = 'trap "exit 0" TERM; while :; do sleep 0.05; done'
    start(shared_cloud, "network-ends", "sh", "-c", arguments=(ends,), hosts=2)
    wait_for(lambda: switches() - before, "the switch")
    own = switches() - before
    shared_cloud.sagemaker.stop_training_job(TrainingJobName="network-ends")
    wait_for(lambda: not own & switches(), "the end of the switch")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.runs
def test_without_namespaces_the_log_warns_of_the_shared_network(
    open_cloud: Callable[[], Cloud], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMDP_LOCAL_ISOLATION", "tree")
    cloud = open_cloud()
    command = 'echo "at $SMDP_ML_ROOT"$http_proxy'
    start(cloud, "shared-network", "sh", "-c", arguments=(command,))
    job = cloud.wait("shared-network")
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    tree = cloud.state_dir / "jobs/shared-network/hosts/algo-1/ml"
    assert f"at {tree}" in cloud.log("shared-network")
    cloud.await_log("shared-network", "[algo-1] The hosts share the network of the machine that runs smdp-launch")
