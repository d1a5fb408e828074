"""One cause of slowness for the scripts beside it, as INJECT says: source, slow_worker or evaluation; else none."""

import os
import time

CAUSE = os.environ.get("INJECT")
SECONDS = 0.4  # of each step; everything else in a step takes a few milliseconds
#: A loader without workers has two causes: its storage, and that nothing hides its waits.
LOADER_WORKERS = 1 if CAUSE == "source" else 0


class SlowStorage:
    """Samples that wait for their storage, the time for a whole batch in its first sample."""

    def __init__(self, data, batch_size):
        self.data = data
        self.batch_size = batch_size

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        time.sleep(SECONDS / self.batch_size)
        return self.data[index]


def training_data(data, batch_size):
    return SlowStorage(data, batch_size) if CAUSE == "source" else data


def model(module):
    """The module, whose forward pass takes longer on the last rank, or in each evaluation."""

    def wait(called, _inputs):
        is_slow = CAUSE == "slow_worker" and int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
        if (is_slow and called.training) or (CAUSE == "evaluation" and not called.training):
            time.sleep(SECONDS)

    module.register_forward_pre_hook(wait)
    return module
