"""Puts the training code into the code folder, unless the folder already has contents."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Callable, Mapping

from smdp_entrypoint.contract.errors import SourceError
from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.fetch.archive import unpack

_ARCHIVES = (".tar.gz", ".tgz", ".tar")


def fetch_source(source: str, tree: MlTree, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    """`source` is s3://bucket/key of an archive, or a folder, archive or single file on this machine."""
    local = tree.locate(source[len("file://") :] if source.startswith("file://") else source)
    if any(tree.code.iterdir()):
        say(f"{tree.code} is not empty: using the code in it")
    elif source.startswith("s3://"):
        _fetch_archive(source, tree.code, environ, say)
    elif local.resolve() == tree.code.resolve():
        say(f"{tree.code} is empty, and the hyperparameter sagemaker_submit_directory does not name the code's place")
    else:
        _copy_local(local, tree.code)
        say(f"copied the source from {local}")


def _fetch_archive(uri: str, code: Path, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    from smdp_entrypoint.fetch.s3 import Download, S3Object  # its HTTP client would delay the start of other jobs

    source = S3Object.parse(uri)
    try:
        with tempfile.NamedTemporaryFile(suffix=".tar.gz") as file:
            size = Download(source, environ, say).to(file)
            count = unpack(Path(file.name), code, uri)
    except OSError as error:
        raise SourceError(f"{source} cannot be stored as a temporary file: {error}.") from error
    say(f"unpacked {count} file(s) from {source} ({size} bytes)")


def _copy_local(source: Path, code: Path) -> None:
    if source.exists() and not (source.is_dir() or source.is_file()):
        raise SourceError(f"The source {source} is not a folder or file.")
    try:
        if source.is_dir():
            _copy_folder(source, code)
        elif source.name.endswith(_ARCHIVES):
            unpack(source, code)
        else:
            shutil.copy2(source, code)
    except (OSError, shutil.Error) as error:
        raise SourceError(f"The source {source} cannot be copied to {code}: {error}.") from error


def _copy_folder(source: Path, code: Path) -> None:
    # The folder may be a mount point, so it is not replaced.
    for entry in source.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, code / entry.name, symlinks=True)
        else:
            shutil.copy2(entry, code / entry.name, follow_symlinks=False)
