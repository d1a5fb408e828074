"""What people start from - job files, scripts, notebooks - from a checkout or from the wheel."""

from __future__ import annotations

from pathlib import Path


def template(name: str) -> Path:
    """The file of a template, such as ``notebooks/train.ipynb``.

    Raises:
        FileNotFoundError: there is no such template, or the installation is not whole.
    """
    package = Path(__file__).resolve().parent
    places = [folder / name for folder in (package / "_templates", package.parent / "templates")]
    found = next((one for one in places if one.is_file()), None)
    if found is None:
        raise FileNotFoundError(f"there is no template {name} in {package}")
    return found
