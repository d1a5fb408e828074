"""Where the scripts of this folder and their Python are, and the variables by which libraries choose a backend."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
PYTHON = HERE.parents[1] / ".venv-programs" / "bin" / "python"

# Accelerate and the Trainer read their backend from the environment: Gloo as on any CPU, smddp as on SageMaker, with
# the model on the CPU.
ON_CPU = {"ACCELERATE_TORCH_DEVICE": "cpu", "ACCELERATE_BYPASS_DEVICE_MAP": "true"}
AS_ACCELERATE = {"gloo": {"ACCELERATE_USE_CPU": "true"}, "smddp": {"ACCELERATE_USE_SAGEMAKER": "true", **ON_CPU}}
AS_THE_TOOLKIT = {
    "gloo": {"ACCELERATE_USE_CPU": "true"},
    "smddp": {"SM_FRAMEWORK_PARAMS": '{"sagemaker_distributed_dataparallel_enabled": true}', **ON_CPU},
}
