"""A task of a SLURM step, which ``srun`` started."""

from typing import List

from . import master
from .launch import Launch, LaunchError
from .node_list import expand, expand_counts
from .variables import Variables, check_bounds, shown

_START = "start the script with srun, as in: srun --ntasks-per-node 4 python train.py"
# Those of the step come first: a step may use a part of the job's nodes. The last ones are of old versions.
_SIZE = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
_NODES = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
_TASKS = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")


def is_task(variables: Variables) -> bool:
    """Whether srun started this process. The batch script of a job has SLURM_PROCID too, but no step."""
    return "SLURM_PROCID" in variables and "SLURM_STEP_ID" in variables


def refuse_job_without_step(variables: Variables) -> None:
    job = variables.text("SLURM_JOB_ID")
    if job is not None:
        raise LaunchError(
            f"SLURM_STEP_ID is not set: this process runs in SLURM job {job}, but srun did not start it, "
            f"so it has no rank: {_START}"
        )


def launch(variables: Variables) -> Launch:
    job = variables.number("SLURM_JOB_ID", "SLURM_JOBID", fix=_START)
    step = variables.number("SLURM_STEP_ID", "SLURM_STEPID", fix=_START)
    rank = variables.number("SLURM_PROCID", fix=_START)
    world_size = variables.number(*_SIZE, fix=_START)
    local_rank = variables.number("SLURM_LOCALID", fix=_START)
    node = variables.number("SLURM_NODEID", fix=_START)
    nodes = _nodes(variables)
    tasks = _tasks(variables, nodes, world_size)
    if node >= len(nodes):
        raise LaunchError(
            f"SLURM_NODEID={node} is not below the {len(nodes)} nodes of {variables.first(_NODES)}: {_START}"
        )
    names = ("SLURM_PROCID", str(variables.first(_SIZE)), "SLURM_LOCALID", str(variables.first(_TASKS)))
    check_bounds(rank, world_size, local_rank, tasks[node], names)
    variables.check(RANK=rank, WORLD_SIZE=world_size, LOCAL_RANK=local_rank, LOCAL_WORLD_SIZE=tasks[node])
    address, origin = variables.text("MASTER_ADDR"), "from the environment"
    if address is None:
        _check_rank_0_on_first_node(variables, node)
        address, origin = nodes[0], f"from the first node of {variables.first(_NODES)}"
    master.check_address(address, is_one_host=len(nodes) == 1)
    name = f"SLURM step {job}.{step}"
    port, port_origin = master.port(variables, name, "")
    return Launch("slurm", name, rank, world_size, local_rank, tasks[node], address, port, origin, port_origin)


def _nodes(variables: Variables) -> List[str]:
    name = variables.first(_NODES)
    if name is None:
        raise LaunchError(f"{_NODES[0]} is not set: {_START}")
    text = str(variables.text(name))
    try:
        return expand(text)
    except ValueError as error:
        raise LaunchError(
            f"{name}={shown(text)} is not a list of nodes ({error}): "
            "set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, and pass launcher='env'"
        ) from None


def _tasks(variables: Variables, nodes: List[str], world_size: int) -> List[int]:
    """The number of tasks of each node."""
    name = variables.first(_TASKS)
    if name is None:
        raise LaunchError(f"{_TASKS[0]} is not set: {_START}")
    text = str(variables.text(name))
    try:
        tasks = expand_counts(text)
    except ValueError as error:
        raise LaunchError(f"{name}={shown(text)} is not a list of tasks for each node ({error}): {_START}") from None
    if len(tasks) != len(nodes) or sum(tasks) != world_size:
        raise LaunchError(
            f"{name}={shown(text)} has {sum(tasks)} tasks on {len(tasks)} nodes, but "
            f"{variables.first(_SIZE)} is {world_size} and {variables.first(_NODES)} has {len(nodes)} nodes: "
            "unset what your script exports of them"
        )
    return tasks


def _check_rank_0_on_first_node(variables: Variables, node: int) -> None:
    """With ``--distribution=arbitrary`` rank 0 may run elsewhere, which only the tasks of two nodes can notice."""
    ranks = variables.text("SLURM_GTIDS")
    if ranks is not None and ("0" in ranks.split(",")) != (node == 0):
        raise LaunchError(
            "MASTER_ADDR is not set, and rank 0 does not run on the first node of the step "
            f"(SLURM_NODEID={node} has the ranks SLURM_GTIDS={shown(ranks)}): "
            "set MASTER_ADDR to the name of rank 0's node"
        )
