"""What can go wrong, as exceptions.

    BaseException
        StopRequested       the platform asked us to end while the job was still being prepared
        OthersFailed        another host failed while the job was still being prepared here
    Exception
        EntrypointError     the platform's or the job's fault: the text goes to the failure file
            ContractError   a file or variable of the platform is missing or malformed
            SourceError     the training code could not be fetched or unpacked
            ProgramError    the program named by the job cannot be run
            HostsError      the first host could not be found on the network
            DeviceError     GPUs that the host should have are missing, or do not answer

Anything else that escapes is a bug of ours, and is reported as one.
"""

from __future__ import annotations


class EntrypointError(Exception):
    """One sentence on what is wrong, where, and what to do; fit for the failure file as it stands."""


class ContractError(EntrypointError):
    """A file or variable that the platform provides is missing or malformed."""


class SourceError(EntrypointError):
    """The training code could not be fetched or unpacked."""


class ProgramError(EntrypointError):
    """The job's program is missing, lies outside the code folder, or its requirements cannot be met."""


class HostsError(EntrypointError):
    """The first host's name did not turn into an address, or it did not answer, within the deadline."""


class DeviceError(EntrypointError):
    """GPUs that the host should have are missing, or their driver does not answer."""


class OthersFailed(BaseException):
    """Another host failed before any worker was started here. No `except Exception` eats it."""


class StopRequested(BaseException):
    """A stop signal arrived before any worker was started. As with KeyboardInterrupt, no `except Exception` eats it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum
