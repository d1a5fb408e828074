"""The command that installs packages into the Python environment of this process."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from smdp_launch.doctor.environment import Environment, path_of, this_environment
from smdp_launch.doctor.wheels import Links, links

LAUNCHER = "smdp-launch"


@dataclass(frozen=True)
class Options:
    """How packages are installed.

    Args:
        is_again: whether a package is installed again if it is there.
        alone: without what they require.
        is_isolated: whether a build gets an environment of its own.
        folder: the folder of wheels that the tool looks in, too.
    """

    is_again: bool = False
    alone: bool = False
    is_isolated: bool = True
    folder: Path | None = None

    @property
    def find_links(self) -> list[str]:
        return ["--find-links", str(self.folder)] if self.folder is not None else []

    @property
    def of_pip(self) -> list[str]:
        chosen = {"--force-reinstall": self.is_again, "--no-deps": self.alone}
        chosen["--no-build-isolation"] = not self.is_isolated
        return [*(option for option, is_chosen in chosen.items() if is_chosen), *self.find_links]


def command(environment: Environment, packages: Sequence[str], options: Options = Options()) -> str:
    """The command that installs the packages, such as ``pip install 'smdp-launch[local]'``."""
    whole = {"uv tool": _uv_tool, "uvx": _uvx, "uv run": _uv_run, "pipx run": _pipx_run, "uv project": _uv_project}
    make = whole.get(environment.tool)
    if make is not None and options.is_isolated:
        return make(environment, packages, options)
    return f"{_installer(environment)} {shlex.join([*options.of_pip, *packages])}"


def _installer(environment: Environment) -> str:
    tool, prefix = environment.tool, environment.prefix
    if tool == "pipx":
        return f"pipx runpip {shlex.quote(prefix.name)} install"
    if tool.startswith("uv"):
        is_active = environment.variables.get("VIRTUAL_ENV") == str(prefix)
        python = "" if is_active else f" --python {shlex.quote(str(environment.executable))}"
        return f"{environment.program('uv')} pip install{python}"
    python, options = _python(environment), _options_of_system(environment)
    if environment.has_pip:
        return f"{'pip' if environment.is_first_on_path('pip') else f'{python} -m pip'} install{options}"
    first = f"conda install --yes --prefix {shlex.quote(str(prefix))} pip" if tool == "conda" else None
    return f"{first or f'{python} -m ensurepip'} && {python} -m pip install{options}"


def _options_of_system(environment: Environment) -> str:
    if environment.is_virtual or environment.tool == "conda":
        return ""
    managed = " --break-system-packages" if environment.is_managed else ""
    return f"{' --user' if environment.in_user_site else ''}{managed}"


def _python(environment: Environment) -> str:
    name = next((one for one in ("python", "python3") if environment.is_first_on_path(one)), None)
    return name or shlex.quote(str(environment.executable))


def _python_of_uv(environment: Environment) -> list[str]:
    return ["--python", environment.version] if environment.version else []


def _uv_tool(environment: Environment, packages: Sequence[str], options: Options) -> str:
    """uv removes from a tool's environment what it has not installed itself, so the command has all packages."""
    main, others = _parted(packages)
    names = {_name(one) for one in others}
    others = [*(one for one in environment.recorded.packages if _name(one) not in names), *others]
    more = [*_python_of_uv(environment), *options.find_links, *_again(options, packages), *_with(others)]
    return f"{environment.program('uv')} tool install {shlex.join([*more, main])}"


def _uvx(environment: Environment, packages: Sequence[str], options: Options) -> str:
    main, others = _parted(packages)
    more = [
        *_python_of_uv(environment),
        *options.find_links,
        *_again(options, packages),
        "--from",
        main,
        *_with(others),
    ]
    return f"{environment.program('uv')} tool run {shlex.join([*more, LAUNCHER, *environment.arguments])}"


def _uv_run(environment: Environment, packages: Sequence[str], options: Options) -> str:
    main, others = _parted(packages)
    more = [*_python_of_uv(environment), *options.find_links, *_again(options, packages), *_with([main, *others])]
    return f"{environment.program('uv')} run {shlex.join([*more, LAUNCHER, *environment.arguments])}"


def _pipx_run(environment: Environment, packages: Sequence[str], options: Options) -> str:
    main, others = _parted(packages)
    again = ["--no-cache"] if options.is_again else []
    links_ = [f"--pip-args={shlex.join(options.find_links)}"] if options.folder is not None else []
    return f"pipx run {shlex.join([*again, *links_, '--spec', main, *_with(others), LAUNCHER, *environment.arguments])}"


def _uv_project(environment: Environment, packages: Sequence[str], options: Options) -> str:
    folder = environment.prefix.parent
    place = [] if folder in (Path.cwd(), *Path.cwd().parents) else ["--project", str(folder)]
    more = [*place, *options.find_links, *_again(options, packages)]
    return f"{environment.program('uv')} add {shlex.join([*more, *packages])}"


def _parted(packages: Sequence[str]) -> tuple[str, list[str]]:
    """The launcher with its extra, and the other packages."""
    main = next((one for one in packages if _name(one) == LAUNCHER), f"{LAUNCHER}[local]{_same_version()}")
    return main, [one for one in packages if _name(one) != LAUNCHER]


def _with(packages: Sequence[str]) -> list[str]:
    return [part for one in packages for part in ("--with", one)]


def _again(options: Options, packages: Sequence[str]) -> list[str]:
    names = [_name(one) for one in packages] if options.is_again else []
    return [part for one in names for part in ("--reinstall-package", one)]


def _name(package: str) -> str:
    return re.split(r"[\[=<>!~; ]", package, maxsplit=1)[0]


def install(*packages: str, options: Options = Options()) -> str:
    """The command that installs the packages into this environment."""
    return command(this_environment(), packages, options)


def install_ours(*packages: str, is_again: bool = False, alone: bool = False) -> str:
    """The command that installs packages of which some are ours, which a folder of wheels may have."""
    return install(*packages, options=Options(is_again, alone, folder=known_links().folder))


def install_local(*more: str) -> str:
    """The command that installs all that local runs need, the extra ``local``, and ``more`` packages.

    In a checkout, our own packages are the checkout's, without the engine, which is built after the framework.
    """
    sources = checkout()
    if sources is None:
        return install_ours(f"{LAUNCHER}[local]{_same_version()}", *more)
    return install(f"{sources}[local-cloud]", str(sources / "containers" / "entrypoint"), *more)


def install_engine(*, is_again: bool = False) -> str:
    """The command that installs the engine; in a checkout, the command that builds it for the installed framework."""
    sources = checkout()
    if sources is not None:
        return build_engine(sources / "native")
    return install_ours(f"smdp-engine{_same_version()}", is_again=is_again, alone=is_again)


def build_engine(sources: Path) -> str:
    """The command that builds the engine from its sources for the installed framework, and installs it. It needs a C++
    compiler and Python's headers."""
    # The build finds torch with its own module for extensions, which in old versions needs pkg_resources.
    tools = install("scikit-build-core>=0.11,<2", "cmake>=3.20,<4", "ninja>=1.11", "setuptools<81")
    return f"{tools} && {install(str(sources), options=Options(is_again=True, alone=True, is_isolated=False))}"


def engine_sources() -> Path | None:
    """The engine's sources, in the checkout or in the installed package of the launcher."""
    inside = Path(__file__).resolve().parents[1] / "_image" / "native"
    sources = checkout()
    return sources / "native" if sources is not None else inside if inside.is_dir() else None


def version(distribution: str) -> str | None:
    """None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _same_version() -> str:
    launcher = version(LAUNCHER)
    return f"=={launcher}" if launcher is not None else ""


def known_links() -> Links:
    """Where the wheels of our packages are."""
    return links(this_environment(), version(LAUNCHER), _origin())


def checkout() -> Path | None:
    """The folder that smdp-launch was installed from, if it still has the sources of all packages."""
    folder = _origin()
    if folder is None or not (folder / "native" / "pyproject.toml").is_file():
        return None
    return folder if (folder / "containers" / "entrypoint" / "pyproject.toml").is_file() else None


def _origin() -> Path | None:
    """The folder or file that smdp-launch was installed from; None if pip found it in an index or with --find-links."""
    try:
        record = importlib.metadata.distribution(LAUNCHER).read_text("direct_url.json")
        url = str(json.loads(record or "{}").get("url", ""))
    except (importlib.metadata.PackageNotFoundError, ValueError, AttributeError):
        return None
    return path_of(url) if url.startswith("file:") else None
