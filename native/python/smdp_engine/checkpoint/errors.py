"""The error of this package."""


class CheckpointError(Exception):
    """A checkpoint could not be saved, read, or agreed on by the ranks; the message names the file and the rank."""


def different_steps(first: int, last: int) -> str:
    return f"the ranks save different steps, from {first} to {last}: pass the same step on all ranks"
