"""Templates of job files, scripts and notebooks, from a checkout or from the wheel."""

from __future__ import annotations

from pathlib import Path


def template(name: str) -> Path:
    """The file of a template, such as ``notebooks/train.ipynb``.

    Raises:
        FileNotFoundError: there is no such template, or the installation is incomplete.
    """
    package = Path(__file__).resolve().parent
    paths = [folder / name for folder in (package / "_templates", package.parent / "templates")]
    path = next((one for one in paths if one.is_file()), None)
    if path is None:
        raise FileNotFoundError(f"there is no template {name} in {package}")
    return path
