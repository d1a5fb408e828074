"""SLURM's lists of nodes and of tasks, as ``scontrol show hostnames`` reads them."""

import shutil
import subprocess
from pathlib import Path
from typing import List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_engine.launchers.node_list import expand, expand_counts

WORDS = st.text("abgnu-.", min_size=1, max_size=4).filter(lambda word: word.strip("-.") == word)


@st.composite
def ranges(draw: st.DrawFn) -> Tuple[str, List[str]]:
    """What stands in a pair of brackets, and the numbers."""
    texts, numbers = [], []
    for _ in range(draw(st.integers(1, 3))):
        width = draw(st.integers(1, 4))
        first = draw(st.integers(0, 120))
        last = first + draw(st.integers(0, 12))
        lower = str(first).zfill(width)
        expanded = [str(one).zfill(len(lower)) for one in range(first, last + 1)]
        texts.append(lower if first == last else f"{lower}-{expanded[-1]}")
        numbers += expanded
    return "[" + ",".join(texts) + "]", numbers


@st.composite
def lists(draw: st.DrawFn) -> Tuple[str, List[str]]:
    """A list of nodes, and their names."""
    texts, names = [], []
    for _ in range(draw(st.integers(1, 3))):
        text, expanded = "", [""]
        for _ in range(draw(st.integers(0, 2))):
            word, (brackets, numbers) = draw(WORDS), draw(ranges())
            text += word + brackets
            expanded = [before + word + number for before in expanded for number in numbers]
        if not text:
            text = draw(WORDS) + draw(st.sampled_from(["", "0", "7", "012"]))
            expanded = [text]
        texts.append(text)
        names += expanded
    return ",".join(texts), names


@given(lists())
def test_list_expands_to_its_names(case: Tuple[str, List[str]]) -> None:
    text, names = case
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node[01-03,7],gpu-a", ["node01", "node02", "node03", "node7", "gpu-a"]),
        ("rack[1-2]node[1-3]", ["rack1node1", "rack1node2", "rack1node3", "rack2node1", "rack2node2", "rack2node3"]),
        ("n[1-2][3-4]", ["n13", "n14", "n23", "n24"]),
        ("n[9-10],n[098-101]", ["n9", "n10", "n098", "n099", "n100", "n101"]),
        ("[1-3]", ["1", "2", "3"]),
    ],
)
def test_examples(text: str, names: List[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "a,",
        ",a",
        "n[",
        "n]",
        "n[]",
        "n[1",
        "n[1-",
        "n[1-2",
        "n[3-1]",
        "n[a-b]",
        "n[1,]",
        "n[,1]",
        "n[[1]]",
        "n[1]]",
        "n[1-2]-ib",
        "a b",
        " a",
        "a\n",
        "n[ 1]",
        "n[1-2-3]",
        "n[-1]",
        "n[0-100000]",
        "n[0-999][0-999]",
        "n[" + ",".join(["0-65535"] * 3000) + "]",
        "n[²]",
    ],
)
def test_malformed_and_huge_lists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        expand(text)


@given(st.text("n1-[],() x", max_size=12))
def test_any_text_gives_names_or_value_error(text: str) -> None:
    try:
        names = expand(text)
    except ValueError:
        return
    assert names
    assert all(name and not set(name) & set("[], ") for name in names)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), min_size=1, max_size=6))
def test_counts_expand_to_one_number_for_each_node(runs: List[Tuple[int, int]]) -> None:
    text = ",".join(str(count) if nodes == 1 else f"{count}(x{nodes})" for count, nodes in runs)
    assert expand_counts(text) == [count for count, nodes in runs for _ in range(nodes)]


@pytest.mark.parametrize("text", ["", "2,", "2(x", "2(3)", "(x2)", "-1", "2 (x3)", "1(x99999)", "9" * 5000])
def test_malformed_and_huge_counts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        expand_counts(text)


@pytest.fixture(scope="module")
def scontrol(tmp_path_factory: pytest.TempPathFactory) -> List[str]:
    """The command, with a configuration: it runs without a cluster."""
    if shutil.which("scontrol") is None:
        pytest.skip("needs scontrol of SLURM: apt-get install slurm-client")
    configuration: Path = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    configuration.write_text("ClusterName=none\nSlurmctldHost=localhost\nAuthType=auth/none\n")
    return ["env", f"SLURM_CONF={configuration}", "scontrol", "show"]


def _lines(command: List[str]) -> List[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.launchers
def test_list_expands_as_scontrol_expands_it(scontrol: List[str]) -> None:
    @given(lists())
    def compare(case: Tuple[str, List[str]]) -> None:
        text, names = case
        assert _lines([*scontrol, "hostnames", text]) == names == expand(text)

    compare()


@pytest.mark.launchers
def test_list_that_scontrol_writes_expands_to_its_names(scontrol: List[str]) -> None:
    @given(lists())
    def compare(case: Tuple[str, List[str]]) -> None:
        names = sorted(set(case[1]))
        (text,) = _lines([*scontrol, "hostlistsorted", ",".join(names)])
        assert sorted(expand(text)) == names

    compare()
