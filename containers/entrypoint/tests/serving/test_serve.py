"""`serve` as a process: its answers, its workers, its failures and its end."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Callable, Iterator

import pytest
from entrypoint_support.host import wait_until
from entrypoint_support.serving import ADDRESS, Answer, Server

DOUBLES = """
import json, os

def model_fn(model_dir):
    with open(os.path.join(model_dir, "factor")) as file:
        return float(file.read())

def input_fn(body, content_type):
    return json.loads(body)

def predict_fn(data, model):
    return [model * one for one in data]

def output_fn(prediction, accept):
    return json.dumps({"is": prediction, "by": os.getpid()}), accept
"""
# Answers "hang" only once the test has created the file that the body names.
WAITS = """
import json, os, signal, time

def model_fn(model_dir):
    return model_dir

def predict_fn(data, model):
    if "kill" in data:
        os.kill(os.getpid(), signal.SIGKILL)
    if "started" in data:
        open(data["started"], "w").close()
    while "wait" in data and not os.path.exists(data["wait"]):
        time.sleep(0.01)
    return {"pid": os.getpid()}
"""


def doubling(server: Server) -> Server:
    server.script(DOUBLES)
    server.model("factor").write_text("2", encoding="utf-8")
    return server


def together(*calls: Callable[[], Answer]) -> list[Answer]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [one.result() for one in [pool.submit(call) for call in calls]]


@pytest.fixture
def plain_server(server: Server) -> Server:
    return doubling(server).serve()


def test_script_answers_request_with_its_model(server: Server) -> None:
    doubling(server).serve()
    answer = server.invoke("[1, 2.5]")
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert answer.json["is"] == [2, 5]
    assert server.host.text.count("serving inference.py with 1 worker(s)") == 1


def test_context_sets_the_status_and_the_headers(server: Server) -> None:
    server.script(
        """
        def model_fn(model_dir): return 0
        def predict_fn(data, model, context):
            context.set_response_status(202, "accepted")
            context.set_response_header(0, "x-amzn-sagemaker-custom-attributes", "a\\r\\nb")
            context.set_response_header(0, "Content-Length", "1")
            return data
        """
    )
    answer = server.serve().invoke("[1]")
    assert (answer.status, answer.text, answer.headers["x-amzn-sagemaker-custom-attributes"]) == (202, "[1]", "ab")


def test_health_check_fails_until_model_is_loaded(server: Server) -> None:
    go = server.host.root / "go"
    server.script(
        f"""
        import os, time
        def model_fn(model_dir):
            print("loading", flush=True)
            while not os.path.exists({str(go)!r}):
                time.sleep(0.01)
            return "model"
        def predict_fn(data, model):
            return model
        """
    )
    server.start()
    server.host.wait_for_line("loading")
    assert server.ping() == 503
    go.touch()
    server.await_ready()
    assert server.invoke("1").json == "model"


def test_exception_in_predict_fn_is_an_answer_with_its_cause(server: Server) -> None:
    server.script(
        """
        def model_fn(model_dir):
            return None
        def predict_fn(data, model):
            raise ValueError("no such luck")
        """
    )
    server.serve()
    answer = server.invoke("1")
    assert (answer.status, answer.text) == (500, "predict_fn failed: ValueError: no such luck")
    server.host.wait_for_line("Traceback (most recent call last):")
    server.host.wait_for_line('raise ValueError("no such luck")')
    assert server.ping() == 200


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("x = 1", "inference.py defines no model_fn(model_dir), and "),
        ("import no_such_module", "inference.py cannot be imported: ModuleNotFoundError: No module named"),
        ("def model_fn(model_dir): raise OSError('no file')", "inference.py: model_fn failed: OSError: no file"),
        (
            "def model_fn(d): pass\ndef transform_fn(m, b, c, a): pass\ndef predict_fn(d, m): pass",
            "inference.py defines transform_fn and predict_fn.",
        ),
    ],
)
def test_script_that_cannot_serve_ends_the_container_with_the_reason(server: Server, script: str, reason: str) -> None:
    server.script(script)
    assert server.run() == 1
    assert server.host.failure.startswith(reason)
    assert f"failed: {reason}" in server.host.text


def test_missing_program_is_named_with_contents_of_code(server: Server) -> None:
    server.script("x = 1", "other.py")
    assert server.run(SAGEMAKER_PROGRAM="inference.py") == 1
    assert "SAGEMAKER_PROGRAM 'inference.py' is not in" in server.host.failure
    assert "which contains other.py" in server.host.failure


def test_workers_answer_at_the_same_time(server: Server, until: Callable[..., object]) -> None:
    server.script(WAITS)
    server.serve(workers=2)
    places = [server.host.root / name for name in ("first", "second")]
    calls = [
        lambda own=own, other=other: server.invoke(json.dumps({"started": str(own), "wait": str(other)}))
        for own, other in (places, places[::-1])
    ]
    answers = together(*calls)
    assert [one.status for one in answers] == [200, 200]
    assert len({one.json["pid"] for one in answers}) == 2


def test_many_callers_at_once_each_get_their_answer(server: Server) -> None:
    doubling(server).serve(workers=2)
    answers = together(*[lambda number=number: server.invoke(f"[{number}]") for number in range(64)])
    assert [one.json["is"] for one in answers] == [[2 * number] for number in range(64)]


def test_killed_worker_ends_its_request_and_is_replaced(server: Server) -> None:
    server.script(WAITS)
    server.serve()
    before = server.invoke("{}").json["pid"]
    killed = server.invoke('{"kill": true}')
    assert killed.status == 500
    assert killed.text.startswith("The worker process ended during the request: killed by SIGKILL")
    after = server.invoke("{}")
    assert after.status == 200
    assert after.json["pid"] != before


@pytest.mark.runs
def test_prediction_that_takes_too_long_is_ended(server: Server) -> None:
    server.script(WAITS)
    server.serve(SAGEMAKER_MODEL_SERVER_TIMEOUT="3")
    slow = server.invoke(json.dumps({"wait": "never"}))
    assert (slow.status, slow.text) == (
        504,
        "The model did not answer within 3 s (SAGEMAKER_MODEL_SERVER_TIMEOUT).",
    )
    assert server.invoke("{}").status == 200


@contextlib.contextmanager
def slow_request(server: Server) -> Iterator[tuple[Future[Answer], Path]]:
    """A request to WAITS that a worker has begun, and the file that ends it."""
    started, go = server.host.root / "started", server.host.root / "go"
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(server.invoke, json.dumps({"started": str(started), "wait": str(go)}))
        wait_until(started.exists, "the request to begin")
        yield slow, go


def test_health_check_passes_while_all_workers_are_busy(server: Server) -> None:
    server.script(WAITS)
    server.serve()
    with slow_request(server) as (slow, go):
        assert server.ping() == 200
        go.touch()
        assert slow.result().status == 200


def test_request_beyond_the_queue_is_refused(server: Server) -> None:
    server.script(WAITS)
    server.serve(SMDP_SERVE_QUEUE="1")
    with slow_request(server) as (first, go), ThreadPoolExecutor(2) as pool:
        others = [pool.submit(server.invoke, "{}") for _ in range(2)]
        refused, waiting = wait(others, return_when=FIRST_COMPLETED)
        assert [one.result().status for one in refused] == [503]
        assert refused.pop().result().text == "1 requests are waiting already. Try again."
        go.touch()
        assert [first.result().status, waiting.pop().result().status] == [200, 200]


def test_stop_signal_lets_requests_in_progress_end(server: Server) -> None:
    server.script(WAITS)
    server.serve()
    with slow_request(server) as (slow, go):
        server.host.signal(signal.SIGTERM)
        server.host.wait_for_line("stopping: answering the requests in progress")
        wait_until(lambda: server.ping() == 0, "the port to close")
        go.touch()
        assert slow.result().status == 200
    assert server.host.wait() == 0
    assert "killed by" not in server.host.text  # the idle worker ends because of the stop


@pytest.mark.runs
def test_request_that_outlives_the_stop_budget_is_given_up(server: Server) -> None:
    server.script(WAITS)
    server.serve(SMDP_STOP_BUDGET="0.1")
    started = server.host.root / "started"

    def invoke() -> None:
        with contextlib.suppress(OSError):
            server.invoke(json.dumps({"started": str(started), "wait": "never"}))

    thread = threading.Thread(target=invoke)
    thread.start()
    wait_until(started.exists, "the request to begin")
    server.host.signal(signal.SIGTERM)
    assert server.host.wait() == 0
    thread.join()
    assert "some requests were not answered within 0.1 s" in server.host.text


def test_stop_signal_while_model_loads_ends_the_container(server: Server) -> None:
    server.script("import time\nprint('loading', flush=True)\ntime.sleep(600)\n")
    server.start()
    server.host.wait_for_line("loading")
    server.host.signal(signal.SIGTERM)
    assert server.host.wait() == 0


def test_model_may_bring_its_own_command(server: Server) -> None:
    path = server.script(
        """\
        #!/bin/sh
        echo "own command on port $SAGEMAKER_BIND_TO_PORT"
        """,
        "serve",
    )
    path.chmod(0o755)
    assert server.run() == 0
    assert f"own command on port {server.port}" in server.host.lines


def test_code_folder_of_submit_directory_is_used(server: Server) -> None:
    folder = server.host.root / "elsewhere"
    folder.mkdir()
    (folder / "mine.py").write_text("def model_fn(d): return d\ndef predict_fn(x, m): return [x, 'mine']\n")
    server.serve(SAGEMAKER_SUBMIT_DIRECTORY=str(folder), SAGEMAKER_PROGRAM="mine.py")
    assert server.invoke('"a"').json == ["a", "mine"]


@pytest.mark.runs
def test_script_imports_modules_beside_it(server: Server) -> None:
    server.script("VALUE = 7", "beside.py")
    server.script("import beside\ndef model_fn(d): return beside\ndef predict_fn(x, m): return m.VALUE")
    server.serve()
    assert server.invoke("1").json == 7


@pytest.mark.runs
def test_body_in_chunks_is_one_body(server: Server) -> None:
    doubling(server).serve()
    parts = iter([b"[1,", b" 2, ", b"3]"])
    answer = server.request("POST", "/invocations", parts, {"Content-Type": "application/json"})
    assert answer.json["is"] == [2, 4, 6]


def test_token_is_required_and_not_shown_to_the_script(server: Server) -> None:
    server.script(
        """
        def model_fn(model_dir):
            return None
        def predict_fn(data, model, context):
            return sorted(context.get_all_request_header())
        """
    )
    server.serve(SMDP_SERVE_TOKEN="secret")
    assert server.invoke("1").status == 403
    assert server.invoke("1", X_Smdp_Serve_Token="wrong").status == 403
    assert "x-smdp-serve-token" not in server.invoke("1", X_Smdp_Serve_Token="secret").json


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/models", 404), ("POST", "/ping", 405), ("GET", "/invocations", 405), ("PUT", "/invocations", 405)],
)
def test_other_requests_are_refused(plain_server: Server, method: str, path: str, status: int) -> None:
    assert plain_server.request(method, path).status == status


@pytest.mark.parametrize(
    "head",
    [
        b"POST /invocations HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /invocations HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"nonsense\r\n\r\n",
        b"POST /invocations HTTP/1.1\r\nContent-Length: 10\r\n\r\nshort",
    ],
)
def test_malformed_request_gets_an_error_and_costs_nothing_else(plain_server: Server, head: bytes) -> None:
    with socket.create_connection((ADDRESS, plain_server.port)) as connection:
        connection.sendall(head)
        connection.shutdown(socket.SHUT_WR)
        assert b" 400 " in connection.recv(4096)
    assert plain_server.ping() == 200


@pytest.mark.runs
def test_port_in_use_ends_the_container(server: Server) -> None:
    doubling(server)
    with socket.socket() as taken:
        taken.bind((ADDRESS, server.port))
        taken.listen()
        assert server.run() == 1
    assert f"The port {ADDRESS}:{server.port} cannot be opened: " in server.host.failure


@pytest.mark.runs
def test_no_worker_survives_a_killed_server(server: Server, until: Callable[..., object]) -> None:
    server.script(WAITS)
    server.serve()
    worker = server.invoke("{}").json["pid"]
    server.host.signal(signal.SIGKILL)
    server.host.wait()
    until(lambda: not Path(f"/proc/{worker}").exists(), "the worker's end")
