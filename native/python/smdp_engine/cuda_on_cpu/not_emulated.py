"""The error of a part of CUDA that is not emulated."""

PAGE = "docs/how-to/cuda-on-cpu.md"


class NotEmulated(RuntimeError):
    """A script uses a part of CUDA that is not emulated."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(f"{what} is not emulated by --cuda-on-cpu{advice and ': ' + advice} ({PAGE})")
