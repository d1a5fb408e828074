"""The rules about ``smdistributed.dataparallel.tensorflow`` in the script (SMDP440, SMDP441, SMDP456, SMDP457)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.diagnostics import Severity
from smdp_launch.rules.script.tensorflow_library import ARGUMENTS, NAMES, WITHOUT_EQUIVALENT
from tests.conftest import ROOT
from tests.launcher.rules.scripts import AWS, KERAS, SDP, TENSORFLOW, Changes, codes, only, reported

MODULE = ROOT / "native/python/smdp_engine/dropin/smdistributed/dataparallel/tensorflow/__init__.py"
GUIDE = (ROOT / "docs/how-to/tensorflow.md").read_text()
#: With AWS's library, in AWS's image.
AWS_TENSORFLOW: Changes = (*AWS, ('{name: pytorch, version: "2.0.1"}', '{name: tensorflow, version: "2.11.0"}'))
LOOP = """\
import os
import tensorflow as tf
{before}
tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[int(os.environ["LOCAL_RANK"])], "GPU")
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
optimizer = tf.keras.optimizers.SGD(0.1)
for batch in tf.data.Dataset.load("/opt/ml/input/data/train"):
    with tf.GradientTape() as tape:
        loss = model(batch)
    {tape}
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
{after}
"""
TAPE = "tape = sdp.DistributedGradientTape(tape)"
DISTRIBUTED = "sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))"
LIBRARY = "smdistributed.dataparallel.tensorflow"
IMPORT = f"import {LIBRARY} as sdp"


def loop(before: str = SDP, tape: str = TAPE, after: str = "") -> str:
    return LOOP.format(before=before, tape=tape, after=after)


def keras(before: str = SDP, optimizer: str = DISTRIBUTED, after: str = "") -> str:
    return KERAS.format(before=before, optimizer=optimizer, after=after)


def test_names_are_those_of_the_engines_module() -> None:
    (names,) = [
        ast.literal_eval(node.value)
        for node in ast.parse(MODULE.read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert sorted(NAMES) == sorted(names)


def test_arguments_are_those_of_the_engines_module() -> None:
    def arguments(name: str, file: Path) -> tuple[str, ...]:
        node = next(one for one in ast.parse(file.read_text()).body if getattr(one, "name", "") == name)
        if isinstance(node, ast.ClassDef):
            found = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
            return tuple(one.arg for each in found for one in (*each.args.args[1:], *each.args.kwonlyargs))
        assert isinstance(node, ast.FunctionDef)
        return tuple(one.arg for one in (*node.args.args, *node.args.kwonlyargs))

    imports = [node for node in ast.parse(MODULE.read_text()).body if isinstance(node, ast.ImportFrom)]
    engine = ROOT / "native/python"
    files = {one.name: engine / f"{(node.module or '').replace('.', '/')}.py" for node in imports for one in node.names}
    assert {name: arguments(name, files[name]) for name in ARGUMENTS} == ARGUMENTS
    assert sorted(files) == sorted(NAMES)


def test_guide_lists_the_names_of_horovod_without_equivalent() -> None:
    (row,) = [one for one in GUIDE.splitlines() if one.startswith("|") and "hvd.broadcast_object" in one]
    named = set(re.findall(r"`hvd\.(\w+)", row))
    assert row.endswith("| none |")
    assert named - WITHOUT_EQUIVALENT == set()
    assert len(named) > 5


def test_guide_names_only_what_the_module_has() -> None:
    named = re.findall(r"`(?:op=)?sdp\.(\w+)", GUIDE)
    assert len(named) > 20
    assert set(named) - NAMES == set()


@pytest.mark.parametrize(
    "script",
    [
        loop(),
        keras(),
        loop(
            before="from smdistributed.dataparallel.tensorflow import *\ninit()",
            tape="tape = DistributedGradientTape(tape)",
        ),
    ],
)
def test_script_that_uses_the_library_as_documented_is_accepted(tmp_path: Path, script: str) -> None:
    assert reported(tmp_path, script, TENSORFLOW) == []


# 440: separate models


def test_script_without_library_gets_the_call_that_joins_the_job(tmp_path: Path) -> None:
    fit = only(reported(tmp_path, keras("", '"sgd"'), TENSORFLOW))
    assert fit.message == "the script does not join the job, so its 16 workers train 16 separate models"
    assert "wrap the optimizer in its DistributedOptimizer" in fit.help
    assert "add its BroadcastVariablesCallback to the callbacks" in fit.help
    tape = only(reported(tmp_path, loop("", ""), TENSORFLOW))
    assert (tape.code, tape.message) == ("SMDP440", fit.message)
    assert "wrap the tape in its DistributedGradientTape" in tape.help


def test_model_fit_with_library_of_aws_is_reported(tmp_path: Path) -> None:
    one = only(reported(tmp_path, keras("", '"sgd"'), AWS_TENSORFLOW))
    assert one.code == "SMDP440"
    assert one.help.startswith("AWS's library does not support model.fit: write `engine: native`")
    wrapped = only(reported(tmp_path, keras(), AWS_TENSORFLOW))
    assert (wrapped.code, wrapped.severity) == ("SMDP456", Severity.WARNING)
    assert wrapped.message == "AWS's library does not support model.fit"
    assert wrapped.text.startswith("model.fit(")
    assert reported(tmp_path, loop(), AWS_TENSORFLOW) == []


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (loop(before=IMPORT), "sdp.DistributedGradientTape"),
        (loop(before=f"import wandb\n{IMPORT}\nwandb.init()\nrank = sdp.rank()"), "sdp.rank"),
        (keras(before=IMPORT), "sdp.DistributedOptimizer"),
        (loop(before="from smdistributed.dataparallel import tensorflow as sdp"), "sdp.DistributedGradientTape"),
    ],
)
def test_library_without_init_is_reported_at_its_first_use(tmp_path: Path, script: str, text: str) -> None:
    one = only(reported(tmp_path, script, TENSORFLOW))
    assert (one.code, one.text) == ("SMDP440", text)
    assert one.message == "the script uses smdistributed.dataparallel.tensorflow but does not call its init()"


@pytest.mark.parametrize(
    ("before", "modules"),
    [
        (f"import start\n{IMPORT}", {"start.py": f"{IMPORT}\nsdp.init()\n"}),
        (f"import start\n{IMPORT}\nstart.start(sdp)", {"start.py": "def start(library):\n    library.init()\n"}),
        (f"import some_package\n{IMPORT}", {}),
        (f"{IMPORT}\nif tf.config.list_physical_devices('GPU'):\n    sdp.init()", {}),
    ],
)
def test_script_that_may_call_init_is_accepted(tmp_path: Path, before: str, modules: dict[str, str]) -> None:
    assert reported(tmp_path, loop(before), TENSORFLOW, modules) == []


# 441: Horovod


def test_horovod_names_the_guide(tmp_path: Path) -> None:
    one = only(reported(tmp_path, keras("import horovod.keras as hvd\nhvd.init()", '"sgd"'), TENSORFLOW))
    assert one.code == "SMDP441"
    assert "smdistributed.dataparallel.tensorflow" in one.help
    assert "docs/how-to/tensorflow.md" in one.help


# 456: names and calls that the library does not have


@pytest.mark.parametrize(
    ("after", "name", "help_"),
    [
        ("c = sdp.callbacks.MetricAverageCallback()", "callbacks", "write BroadcastVariablesCallback(root_rank=0) and"),
        ("print(sdp.get_world_size())", "get_world_size", "write size()"),
        ("op = sdp.Average", "Average", "write ReduceOp.AVERAGE"),
        ("sdp.brodcast_variables(model.variables, 0)", "brodcast_variables", "write broadcast_variables"),
        ("from smdistributed.dataparallel.tensorflow import elastic", "elastic", "lists its functions"),
        ("print(sdp.cross_rank())", "cross_rank", "remove it: the library has no equivalent of Horovod's cross_rank"),
        ("sdp.broadcast_object(0)", "broadcast_object", "no equivalent of Horovod's broadcast_object"),
        ("print(sdp.nccl_built())", "nccl_built", "no equivalent of Horovod's nccl_built"),
        ("sdp.grouped_allreduce([])", "grouped_allreduce", "write allreduce(tensor, param_index, num_params) for each"),
        ("sdp.all_losses()", "all_losses", "lists its functions"),
        ("import smdistributed.dataparallel.tensorflow.keras as hvd", "keras", "lists its functions"),
    ],
)
def test_name_that_the_library_does_not_have_is_error(tmp_path: Path, after: str, name: str, help_: str) -> None:
    one = only(reported(tmp_path, loop(after=after), TENSORFLOW))
    assert (one.code, one.severity) == ("SMDP456", Severity.ERROR)
    assert one.message == f"smdistributed.dataparallel.tensorflow has no {name}"
    assert help_ in one.help
    assert "docs/how-to/tensorflow.md" in one.help


def test_missing_name_in_a_function_is_a_warning_and_reported_once(tmp_path: Path) -> None:
    after = "def finish():\n    sdp.join()\n    sdp.join()\n\n\nfinish()"
    one = only(reported(tmp_path, loop(after=after), TENSORFLOW))
    assert (one.code, one.severity) == ("SMDP456", Severity.WARNING)


@pytest.mark.parametrize(
    "after",
    [
        "if hasattr(sdp, 'join'):\n    sdp.join()",
        "try:\n    sdp.join()\nexcept AttributeError:\n    pass",
        "sdp.extra = 1",
        "print(sdp.__name__)",
        "import horovod.tensorflow as sdp\nsdp.join()",
    ],
)
def test_name_that_may_exist_is_accepted(tmp_path: Path, after: str) -> None:
    assert reported(tmp_path, loop(after=after), TENSORFLOW) == []


def test_name_of_the_native_engine_is_error_with_library_of_aws(tmp_path: Path) -> None:
    script = loop(after="sdp.barrier()")
    assert reported(tmp_path, script, TENSORFLOW) == []
    one = only(reported(tmp_path, script, AWS_TENSORFLOW))
    assert (one.code, one.severity) == ("SMDP456", Severity.ERROR)
    assert one.message == "AWS's smdistributed.dataparallel.tensorflow has no barrier"
    assert "write `engine: native`" in one.help
    locally = only(reported(tmp_path, script, AWS_TENSORFLOW, local=LocalRequest()))
    assert (locally.code, locally.severity) == ("SMDP456", Severity.WARNING)
    undocumented = only(reported(tmp_path, loop(after="sdp.more()"), AWS_TENSORFLOW))
    assert (undocumented.code, undocumented.severity) == ("SMDP456", Severity.WARNING)
    assert codes(reported(tmp_path, keras(after="c = sdp.MetricAverageCallback()"), AWS_TENSORFLOW)) == ["SMDP456"] * 2


@pytest.mark.parametrize(
    ("tape", "text", "message", "help_"),
    [
        (
            "tape = sdp.DistributedGradientTape(tape, gradient_predivide_factor=2.0)",
            "gradient_predivide_factor=2.0",
            f"DistributedGradientTape() of {LIBRARY} has no argument gradient_predivide_factor",
            "remove it",
        ),
        (
            "tape = sdp.DistributedGradientTape(tape, device_dense='/gpu:0')",
            "device_dense='/gpu:0'",
            f"DistributedGradientTape() of {LIBRARY} does not support device_dense",
            "remove it: the CPUs of the hosts reduce the gradients",
        ),
        (
            "tape = sdp.DistributedGradientTape(tape, op=sdp.ReduceOp.SUM)",
            "op=sdp.ReduceOp.SUM",
            f"DistributedGradientTape() of {LIBRARY} supports only op=ReduceOp.AVERAGE",
            "use allreduce()",
        ),
        (
            f"{TAPE}\n    sdp.allreduce(loss, average=False)",
            "average=False",
            f"allreduce() of {LIBRARY} has no argument average",
            "write op=ReduceOp.AVERAGE or op=ReduceOp.SUM",
        ),
        (
            f"{TAPE}\n    sdp.oob_allreduce(loss, compresion=None)",
            "compresion=None",
            f"oob_allreduce() of {LIBRARY} has no argument compresion",
            "write compression",
        ),
    ],
)
def test_argument_that_the_library_refuses_is_error(
    tmp_path: Path, tape: str, text: str, message: str, help_: str
) -> None:
    one = only(reported(tmp_path, loop(tape=tape), TENSORFLOW))
    assert (one.code, one.severity, one.text) == ("SMDP456", Severity.ERROR, text)
    assert one.message == message
    assert help_ in one.help
    assert "docs/how-to/tensorflow.md" in one.help
    undocumented = only(reported(tmp_path, loop(tape=tape), AWS_TENSORFLOW))
    assert (undocumented.code, undocumented.severity) == ("SMDP456", Severity.WARNING)


def test_each_argument_of_an_imported_function_is_reported(tmp_path: Path) -> None:
    before = f"{SDP}\nfrom smdistributed.dataparallel.tensorflow import DistributedOptimizer"
    optimizer = 'DistributedOptimizer("sgd", backward_passes_per_step=1, average_aggregated_gradients=True)'
    found = reported(tmp_path, keras(before, optimizer), TENSORFLOW)
    assert [one.text for one in found] == ["backward_passes_per_step=1", "average_aggregated_gradients=True"]
    assert "gradient_accumulation_steps" in found[0].help


def test_argument_in_a_function_is_a_warning_and_reported_once(tmp_path: Path) -> None:
    after = (
        "def loss_of(one):\n    sdp.oob_allreduce(one, name='a')\n    sdp.oob_allreduce(one, name='b')\n\n\nloss_of(0)"
    )
    one = only(reported(tmp_path, loop(after=after), TENSORFLOW))
    assert (one.code, one.severity, one.text) == ("SMDP456", Severity.WARNING, "name='a'")


@pytest.mark.parametrize(
    "tape",
    [
        "tape = sdp.DistributedGradientTape(tape, device_dense='', op=sdp.ReduceOp.AVERAGE, sparse_as_dense=False)",
        "tape = sdp.DistributedGradientTape(tape, device_dense=device, op=reduction, **options)",
        "tape = sdp.DistributedGradientTape(gradtape=tape, op=None, compression=sdp.Compression.fp16)",
        f"{TAPE}\n    loss = sdp.allreduce(loss, 0, 1, op=sdp.ReduceOp.MAX)",
        f"{TAPE}\n    if hasattr(sdp, 'join'):\n        sdp.allreduce(loss, average=False)",
        f"{TAPE}\n    import horovod.tensorflow as hvd\n    sdp.allreduce(loss, average=False)",
    ],
)
def test_argument_that_the_library_may_accept_is_accepted(tmp_path: Path, tape: str) -> None:
    assert reported(tmp_path, loop(tape=tape), TENSORFLOW) == []


# 457: the GPU of each worker

CHOICE = next(line for line in LOOP.splitlines() if "set_visible_devices" in line)


@pytest.mark.parametrize("changes", [TENSORFLOW, AWS_TENSORFLOW])
def test_script_that_does_not_choose_a_gpu_is_reported_at_init(tmp_path: Path, changes: Changes) -> None:
    one = only(reported(tmp_path, loop().replace(CHOICE, ""), changes))
    assert (one.code, one.severity, one.text) == ("SMDP457", Severity.WARNING, "sdp.init")
    assert one.message == (
        "the script does not choose a GPU, so each worker takes the memory of all 8 GPUs of its host"
    )
    growth = 'for one in tf.config.list_physical_devices("GPU"): tf.config.experimental.set_memory_growth(one, True)'
    grows = only(reported(tmp_path, loop().replace(CHOICE, growth), changes))
    assert (grows.code, "computes on the first of the 8 GPUs" in grows.message) == ("SMDP457", True)


@pytest.mark.parametrize(
    "choice",
    [
        'tf.config.experimental.set_visible_devices(tf.config.list_physical_devices("GPU")[sdp.local_rank()], "GPU")',
        "os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']",
        "options = tf.compat.v1.GPUOptions(visible_device_list=str(sdp.local_rank()))",
        "import start\nstart.choose(tf, sdp)",
        "placement = tf.device(f'GPU:{sdp.local_rank()}')",
        "import some_package\nsome_package.choose()",
    ],
)
def test_script_that_may_choose_a_gpu_is_accepted(tmp_path: Path, choice: str) -> None:
    modules = {"start.py": "def choose(tf, sdp):\n    tf.config.set_visible_devices(sdp.local_rank(), 'GPU')\n"}
    assert reported(tmp_path, loop().replace(CHOICE, choice), TENSORFLOW, modules) == []


def test_host_with_one_gpu_needs_no_choice_of_a_gpu(tmp_path: Path) -> None:
    single: Changes = (*TENSORFLOW, ("ml.p4d.24xlarge", "ml.g5.xlarge"), ("region:", "policy: extended\nregion:"))
    assert "SMDP457" not in codes(reported(tmp_path, loop().replace(CHOICE, ""), single))
