"""The error of a part of CUDA that has no imitation."""

PAGE = "docs/cuda-on-cpu.md"


class NotImitated(RuntimeError):
    """A part of CUDA that has no imitation."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(f"{what} is not imitated by --cuda-on-cpu{advice and ': ' + advice} ({PAGE})")
