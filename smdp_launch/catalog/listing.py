"""The tables as lists for output, filtered by the options of a command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from smdp_launch.catalog.engines import ENGINES, TORCH_DISTRIBUTED, WITH_POLICY
from smdp_launch.catalog.frameworks import (
    Build,
    alternatives,
    build,
    builds,
    frameworks,
    is_cuda_11,
    matches,
    minimum,
    native_cuda,
    native_image,
    native_images,
    native_python,
    native_supports,
    native_versions,
    parts,
)
from smdp_launch.catalog.instances import Instance, instances, source_of, supported_instances
from smdp_launch.catalog.prices import PriceTable
from smdp_launch.catalog.regions import offering, regions, registry_account
from smdp_launch.catalog.registries import training_image
from smdp_launch.catalog.tables import table
from smdp_launch.catalog.transformers import Pair, pairs

Row = dict[str, Any]

#: The framework name for Hugging Face's images.
HUGGINGFACE = "huggingface"
POLICIES = ("strict", "extended")


@dataclass(frozen=True)
class Listing:
    """Rows of one table, with their source and the day on which they were checked.

    Args:
        kind: ``instances``, ``frameworks``, ``images`` or ``prices``.
        left_out: the rows that the filter removed because they are not available, each with the reason.
    """

    kind: str
    source: str
    checked: str
    rows: list[Row]
    left_out: list[str] = field(default_factory=list)

    def to_json(self) -> Row:
        head = {"catalog": 1, "kind": self.kind, "source": self.source, "checked": self.checked}
        return {**head, self.kind: self.rows, "left_out": self.left_out}


def list_instances(policy: str | None = None, engine: str | None = None, region: str | None = None) -> Listing:
    """The types that ``engine`` supports under ``policy``, without those that ``region`` certainly does not offer."""
    every = ENGINES if policy is None else [one for one in ENGINES if one in WITH_POLICY]
    engines = every if engine is None else (engine,)
    allowed = {name for one in engines for name in supported_instances(policy or "extended", one)}
    rows = [_instance_row(one, region) for one in instances() if one.name in allowed]
    available = [row for row in rows if not (row.get("offered") is False and row["offered_certain"])]
    left_out = [f"{row['name']}: not in {region}, {row['offered_source']}" for row in rows if row not in available]
    return _listing("instances", "instances", available, left_out)


def list_prices(region: str, table: PriceTable) -> Listing:
    """The prices of one instance in ``region``, USD an hour: for training, and for an endpoint."""
    training, hosting = table.prices.get(region, {}), table.hosting.get(region, {})
    rows = [
        {"name": name, "region": region, "training_usd": training.get(name), "hosting_usd": hosting.get(name)}
        for name in sorted(training.keys() | hosting.keys())
    ]
    return Listing("prices", table.source, table.date.isoformat(), rows)


def list_frameworks(framework: str | None = None, policy: str | None = None, engine: str | None = None) -> Listing:
    """The versions of each framework in AWS's images, and those that only the native engine has images of.

    For the native engine: the versions that it supports, with the Python and CUDA of its own image.
    """
    names = [] if framework == HUGGINGFACE else _names(framework)
    if engine == "native":
        rows = [_native_row(name, one) for name in names for one in native_versions(name)]
        native = table("frameworks")["native"]
        return Listing("frameworks", native["source"], native["checked"], _narrowed(rows, policy, engine))
    rows = [_framework_row(one) for one in _images_of(framework)]
    rows += [_native_row(name, one) for name in names for one in _only_native(name)]
    return _listing("frameworks", "frameworks", _narrowed(rows, policy, engine))


def list_images(
    region: str | None = None, framework: str | None = None, version: str | None = None, policy: str | None = None
) -> Listing:
    """The URIs of AWS's images, in one region or in every region with a known registry."""
    wanted = [one for one in _images_of(framework) if version is None or matches(one.version, version)]
    where = regions() if region is None else [region]
    rows = [
        {"region": name, **_framework_row(one), "uri": training_image(one, name)}
        for name in where
        if registry_account(name) is not None
        for one in wanted
    ]
    return _listing("images", "frameworks", _narrowed(rows, policy, None))


def _listing(kind: str, source: str, rows: list[Row], left_out: Iterable[str] = ()) -> Listing:
    return Listing(kind, table(source)["source"], table(source)["checked"], rows, list(left_out))


def _names(framework: str | None) -> list[str]:
    return frameworks() if framework is None else [framework]


def _images_of(framework: str | None) -> Iterator[Build | Pair]:
    for name in frameworks():
        if framework in (None, name):
            for one in builds(name):
                yield from [one, *alternatives(name, one.version)]
    if framework in (None, HUGGINGFACE):
        yield from pairs()


def _only_native(framework: str) -> list[str]:
    """The versions that only ``image build`` has an image of, and AWS has not."""
    known = {one.version for one in builds(framework)}
    return [version for version in native_images(framework) if version not in known]


def _instance_row(one: Instance, region: str | None) -> Row:
    sources = {name: source_of(one, name) for name in table("instances")["cells"]}
    row = {**one._asdict(), "from_memory": sorted(one.from_memory)}
    row["sources"] = {name: f"{of.source}, {of.checked}" for name, of in sources.items() if of is not None}
    row |= {engine: _first_policy(one.name, engine) for engine in ENGINES}
    if region is not None:
        known = offering(one.name, region)
        row |= {
            "region": region,
            "offered": None if known is None else known.offered,
            "offered_certain": known is not None and known.certain,
            "offered_source": None if known is None else known.source,
        }
    return row


def _first_policy(name: str, engine: str) -> str | None:
    return next((policy for policy in POLICIES if name in supported_instances(policy, engine)), None)


def _framework_row(one: Build | Pair) -> Row:
    primary = isinstance(one, Build) and build(one.framework, one.version) == one
    cuda_11 = is_cuda_11(one.cuda) and parts(one.version) >= parts(minimum(one.framework))
    return {
        "framework": one.framework,
        "version": one.version,
        "transformers": one.transformers if isinstance(one, Pair) else None,
        "python": one.python,
        "cuda": one.cuda,
        "smddp": one.smddp,
        "native": primary and native_supports(one.framework, one.version),
        "policy": "strict" if cuda_11 else "extended",
        "image_tag": one.image_tag,
    }


def _native_row(framework: str, version: str) -> Row:
    """A version in an image with the native engine: that of ``image build`` if it has a recipe, else the user's own."""
    empty = dict.fromkeys(("transformers", "smddp", "image_tag"))
    python = native_python() if native_image(framework, version) is not None else None
    cuda = native_cuda(framework, version)
    row = {"framework": framework, "version": version, "python": python, "cuda": cuda, "native": True}
    return {**empty, **row, "policy": "strict" if is_cuda_11(cuda) else "extended"}


def _narrowed(rows: Iterable[Row], policy: str | None, engine: str | None) -> list[Row]:
    allowed = [row for row in rows if policy != "strict" or row["policy"] == "strict"]
    if engine is None:
        return allowed
    if engine in TORCH_DISTRIBUTED:
        return [row for row in allowed if row["framework"] == "pytorch" and row["image_tag"] is not None]
    return [row for row in allowed if (row["native"] if engine == "native" else row["smddp"])]
