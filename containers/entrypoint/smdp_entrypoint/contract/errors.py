"""The exceptions of this package.

    BaseException
        StopRequested       a stop signal arrived while this host was preparing the job
        OthersFailed        another host failed while this host was preparing the job
    Exception
        EntrypointError     an error of the platform or the job: the text goes to the failure file
            ContractError   a file or variable of the platform is missing or malformed
            SourceError     the training code could not be fetched or unpacked
            ProgramError    the program named by the job cannot be run
            HostsError      the first host could not be found on the network
            NetworkError    the network has a problem, in a job that only probes it
            DeviceError     GPUs that the host should have are missing, or do not answer
            HealthError     the host is broken, or its disk is full

Any other exception is a bug in this package and is reported as one.
"""

from __future__ import annotations


class EntrypointError(Exception):
    """The text says what is wrong, where, and what to do; it is written to the failure file unchanged."""


class ContractError(EntrypointError):
    """A file or variable that the platform provides is missing or malformed."""


class SourceError(EntrypointError):
    """The training code could not be fetched or unpacked."""


class ProgramError(EntrypointError):
    """The job's program is missing, lies outside the code folder, or its requirements cannot be met."""


class HostsError(EntrypointError):
    """The first host's name did not resolve to an address, or the first host did not answer, within the deadline."""


class NetworkError(EntrypointError):
    """The network between the hosts has a problem, in a job that only probes it."""


class DeviceError(EntrypointError):
    """GPUs that the host should have are missing, or their driver does not answer."""


class HealthError(EntrypointError):
    """This host cannot train: it lacks GPUs, its memory has errors, or its disk is full."""


class OthersFailed(BaseException):
    """Another host failed before this host started a worker. `except Exception` does not catch it."""


class StopRequested(BaseException):
    """A stop signal arrived before any worker started. As with KeyboardInterrupt, `except Exception` does not catch
    it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum
