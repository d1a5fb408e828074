"""Scripts that trace themselves, handle signals or end at once: they do the same as without the measurement."""

import measured_rank
import pytest
import ranks

pytestmark = [pytest.mark.torch, measured_rank.needs_torch]

TRAINS = """
def train(workers=0):
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for batch, _ in DataLoader(Numbers(12), batch_size=2, num_workers=workers):
        model(batch).sum().backward()
        optimizer.step()
    return model.weight.tolist()
"""


def test_script_under_a_tracer_or_profiler_trains_to_the_same_bits() -> None:
    body = (
        TRAINS
        + """
import cProfile, io, pstats
plain = train()
def tracer(frame, what, argument): return tracer
calls = []
def profiler(frame, what, argument): calls.append(what)
for begin, end in (
    (lambda: sys.settrace(tracer), lambda: sys.settrace(None)),
    (lambda: sys.setprofile(profiler), lambda: sys.setprofile(None)),
):
    begin()
    try: traced = train()
    finally: end()
    assert traced == plain
assert calls
profile = cProfile.Profile()
assert profile.runcall(train) == plain
text = io.StringIO()
pstats.Stats(profile, stream=text).print_stats("optimizer.py")
assert "step" in text.getvalue()
print("shown", plain)
"""
    )
    measured = measured_rank.run(body + "assert event()['batches'] == 24")
    assert measured.startswith("shown [[")
    assert measured == measured_rank.run(body, env={"SMDP_TIMING_S": "0"})


def test_signals_of_the_script_reach_its_handlers() -> None:
    measured_rank.run(
        TRAINS
        + """
import signal
seen = []
signal.signal(signal.SIGALRM, lambda *_: seen.append(clock.phase))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
expected = None
while len(seen) < 50:
    result = train()
    assert result == (expected or result)
    expected = result
signal.setitimer(signal.ITIMER_REAL, 0)
fields = event()
assert fields["batches"] % 6 == 0 and abs(total(fields) - fields["window"]) < 1e-6, fields
class Late(Exception): pass
def late(*_): raise Late
signal.signal(signal.SIGALRM, late)
for _ in range(3):  # a script that gives a batch up
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try: next(iter(DataLoader(Numbers(2, wait=600))))
    except Late: pass
    else: assert False
    assert phase() == "other"
train()
assert event()["steps"] == 6
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD):
    assert signal.getsignal(number) in (signal.SIG_DFL, signal.SIG_IGN), number
"""
    )


@pytest.mark.parametrize("ending", ["os._exit(7)", "sys.exit(7)", "os.kill(os.getpid(), 9)", "raise SystemExit(7)"])
@pytest.mark.parametrize("workers", [0, 2])
def test_script_ends_as_it_wants(ending: str, workers: int) -> None:
    body = TRAINS + f"train({workers})\nprint('trained', flush=True)\n{ending}"
    outcome = ranks.start([1], measured_rank.PREAMBLE + body).finish()[0]
    assert (outcome.code, outcome.out) == (-9 if "kill" in ending else 7, "trained\n"), outcome
    assert "Error" not in outcome.err


def test_script_that_replaces_itself_is_measured_again() -> None:
    """As a script does that finds a checkpoint and begins anew: the descriptor of the events stays."""
    out = measured_rank.run(
        """
        os.set_inheritable(writing, True)
        code = (
            "import os, torch; from smdp_engine.timing import emission, torch_hooks; torch_hooks.install();"
            "own = emission.start(); own.clock.checkpoints += 1; own.emit();"
            f"print(os.environ['SMDP_TIMING_LOADER'].startswith(str(os.getpid())))"
        )
        os.set_inheritable(reading, True)
        os.environ["READING"] = str(reading)
        code += "; print(os.read(int(os.environ['READING']), 65536).decode().strip())"
        os.execv(sys.executable, [sys.executable, "-c", code])
        """
    )
    first, second = out.splitlines()
    assert first == "True"
    assert '"event": "timing"' in second
