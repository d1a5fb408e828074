"""The tree that the platform mounts at /opt/ml, or at another root."""

from __future__ import annotations

from pathlib import Path
from typing import Mapping

from smdp_entrypoint.contract.errors import ContractError

PLATFORM_ROOT = "/opt/ml"


class MlTree:
    """Paths of the contract below one root. SMDP_ML_ROOT moves the root where nothing can be mounted at /opt/ml;
    SAGEMAKER_BASE_DIR is the AWS toolkit's name for the same."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()
        self.code = self.root / "code"
        self.model = self.root / "model"
        self.checkpoints = self.root / "checkpoints"
        self.input = self.root / "input"
        self.config = self.input / "config"
        self.data = self.input / "data"
        self.output = self.root / "output"
        self.output_data = self.output / "data"
        self.intermediate = self.output / "intermediate"
        self.failure = self.output / "failure"
        self.success = self.output / "success"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> MlTree:
        return cls(environ.get("SMDP_ML_ROOT") or environ.get("SAGEMAKER_BASE_DIR") or PLATFORM_ROOT)

    def locate(self, path: str) -> Path:
        """The local place of a path that the platform names: /opt/ml at its start is replaced by the root."""
        try:
            return self.root / Path(path).relative_to(PLATFORM_ROOT)
        except ValueError:
            return Path(path)

    def create(self, *more: Path) -> None:
        """Create the folders that scripts write to, and those in `more`, unless they exist."""
        for folder in (self.code, self.model, self.output_data, *more):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ContractError(f"The folder {folder} cannot be created: {error.strerror}.") from error
