"""Processes that a measured rank starts: the loader's workers, forked and spawned ones."""

from pathlib import Path

import measured_rank
import pytest

pytestmark = [pytest.mark.torch, measured_rank.needs_torch]


@pytest.mark.parametrize("persistent", [False, True])
def test_loaders_workers_send_all_they_have_done(persistent: bool) -> None:
    measured_rank.run(
        f"""
        class Reading(Numbers):
            def __getitem__(self, index):
                with open("/dev/zero", "rb") as file: file.read(100_000)
                return super().__getitem__(index)
        loader = DataLoader(Reading(24, wait=0.001), batch_size=2, num_workers=2, persistent_workers={persistent})
        seen = [index.tolist() for _ in range(2) for _, index in loader]
        assert seen == [[index, index + 1] for index in range(0, 24, 2)] * 2
        del loader  # its workers end
        fields = event()
        assert fields["load_workers"] == 2
        assert fields["batches"] == fields["load_batches"] == 24, fields
        assert fields["load_s"] >= 0.048, fields
        assert fields["load_s"] >= fields["load_cpu_s"] + fields["load_queued_s"], fields
        assert fields["load_bytes"] >= 48 * 100_000, fields
        """
    )


def test_full_pipe_of_the_workers_blocks_no_fetch_and_loses_nothing() -> None:
    measured_rank.run(
        """
        loading = own.loading
        try:
            while os.write(loading._writing, bytes(40)): pass
        except BlockingIOError: pass
        loader = DataLoader(Numbers(6, wait=0.11), batch_size=1, num_workers=1)
        iterator = iter(loader)
        for _ in range(3): next(iterator)
        event()  # reads the pipe, so the next fetch finds room
        for _ in iterator: pass
        del iterator, loader
        assert own.loading.read()["load_batches"] == 6
        """
    )


def test_forked_processes_write_no_events_and_measure_nothing() -> None:
    measured_rank.run(
        """
        import multiprocessing
        def work(queue):
            assert emission.start() is None and "SMDP_COUNTERS_S" not in os.environ
            model = torch.nn.Linear(3, 1)
            for batch in DataLoader(Numbers(4)): model(batch[0]).sum().backward()
            print("in the child", flush=True)
            queue.put(sum(clock.read().phases[:5]))
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        torch.save({}, "/dev/null")
        own._lock.acquire()  # as if another thread wrote an event at this moment
        process = context.Process(target=work, args=(queue,))
        process.start()
        own._lock.release()
        assert queue.get() == 0
        process.join()
        assert process.exitcode == 0
        pid = os.fork()
        if pid == 0:
            sys.exit(0)  # with the functions of atexit
        assert os.waitpid(pid, 0)[1] == 0
        fields = event()
        assert fields["batches"] == fields["load_batches"] == fields["samples"] == 0, fields
        assert fields["checkpoints"] == 1
        """
    )


def test_program_that_a_rank_starts_is_no_rank() -> None:
    out = measured_rank.run(
        """
        import subprocess
        code = "from smdp_engine.timing import emission; print(emission.start(), 'SMDP_COUNTERS_S' in os.environ)"
        for closes in (True, False):  # with and without the rank's descriptors
            subprocess.run([sys.executable, "-c", "import os; " + code], close_fds=closes, check=True)
        assert os.environ["SMDP_COUNTERS_S"] == "10000"
        """
    )
    assert out.splitlines() == ["None False", "None False"]


def test_workers_of_a_process_that_a_rank_starts_do_not_count() -> None:
    """A rank starts an evaluation or a torchrun of its own, with loaders of its own."""
    measured_rank.run(
        """
        import subprocess
        code = "import torch; from smdp_engine.timing import torch_hooks; torch_hooks.install()" + chr(10)
        code += "from torch.utils.data import DataLoader; print(len(list(DataLoader(range(8), num_workers=1))))"
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--no-python"]
        command = [*launcher, sys.executable, "-c", code]
        assert subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.split() == [b"8"]
        assert len(list(DataLoader(Numbers(3), num_workers=1))) == 3
        fields = event()
        assert fields["batches"] == fields["load_batches"] == 3, fields
        """
    )


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_of_every_start_method_send_what_they_have_done(method: str, tmp_path: Path) -> None:
    """The workers import the rank's module anew, as those of a script do."""
    (tmp_path / "own_data.py").write_text(
        "import os, torch\n"
        "from smdp_engine.timing import torch_hooks\n"
        "if os.environ['RANK_PROCESS'] != str(os.getpid()): torch_hooks.install()\n"
        "class Data(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 6\n"
        "    def __getitem__(self, index): return torch.ones(2)\n"
    )
    measured_rank.run(
        f"""
        os.environ["RANK_PROCESS"] = str(os.getpid())
        sys.path.insert(0, {str(tmp_path)!r})
        from own_data import Data
        options = dict(num_workers=2, multiprocessing_context={method!r}, persistent_workers=True)
        loader = DataLoader(Data(), batch_size=1, **options)
        assert len(list(loader)) == len(list(loader)) == 6
        loader._iterator._shutdown_workers()
        fields = event()
        assert fields["batches"] == fields["load_batches"] == 12, fields
        """
    )


def test_nothing_is_measured_without_a_pipe_or_when_it_is_off() -> None:
    body = """
    assert own is None
    assert print.__class__.__name__ == "builtin_function_or_method"
    assert DataLoader.__iter__.__module__.startswith("torch") and not hasattr(torch.save, "__wrapped__")
    assert "SMDP_TIMING_LOADER" not in os.environ and "SMDP_COUNTERS_S" not in os.environ
    """
    measured_rank.run(body, env={"SMDP_TIMING_S": "0"})
    closed = measured_rank.PREAMBLE.replace("torch_hooks.install()", "os.close(writing); torch_hooks.install()")
    measured_rank.run(body, preamble=closed)


def test_events_that_the_entrypoint_does_not_read_are_in_the_next_one() -> None:
    measured_rank.run(
        """
        os.set_blocking(writing, False)
        try:
            while os.write(writing, bytes(4096)): pass
        except BlockingIOError: pass
        emission._WRITE_TIMEOUT_S = 0.01
        torch.save({}, "/dev/null")
        own.emit()
        while True:
            try: os.read(reading, 65536)
            except BlockingIOError: break
        assert event()["checkpoints"] == 1
        os.close(writing)
        torch.save({}, "/dev/null")
        own.emit()  # the script has closed the pipe
        """
    )


def test_script_that_closes_all_files_keeps_its_own(tmp_path: Path) -> None:
    measured_rank.run(
        f"""
        os.closerange(3, 200)
        own_files = [open({str(tmp_path)!r} + f"/{{number}}", "w+b") for number in range(30)]
        for file in own_files: file.write(b"own"); file.seek(0)
        for workers in (0, 1):
            assert len(list(DataLoader(Numbers(4), num_workers=workers))) == 4
        own.emit()
        assert [file.read() for file in own_files] == [b"own"] * 30
        """
    )


def test_setting_that_is_no_number_is_refused_in_one_sentence() -> None:
    measured_rank.run(
        """
        for text in ("fast", "-1", "nan"):
            os.environ["SMDP_TIMING_S"] = text
            try: emission.timing_period()
            except ValueError as error: assert f"number of seconds, found '{text}'" in str(error)
            else: assert False
        """
    )
