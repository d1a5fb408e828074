"""Whether a file may exchange gradients with other ranks by its own calls, without a wrapper.

Many scripts sum a metric over the ranks, which does not average gradients.
"""

from __future__ import annotations

import ast
import re

from smdp_launch.source.syntax.extents import Extents
from smdp_launch.source.syntax.tree import Call, Syntax, start, words

#: Calls that sum or collect values over ranks. Scripts use them for metrics too.
_SUMS = {"all_reduce", "allreduce", "oob_allreduce", "reduce", "all_gather", "allgather", "gather", "all_gather_object"}
#: Calls that may carry gradients in another way.
_OTHERS = {
    *("all_reduce_coalesced", "reduce_scatter", "reduce_scatter_tensor", "all_gather_into_tensor", "all_to_all"),
    *("all_to_all_single", "broadcast", "send", "recv", "isend", "irecv", "batch_isend_irecv", "scatter", "rpc"),
    *("rpc_sync", "rpc_async", "remote", "dist_autograd", "_functional_collectives"),
}
_EVALUATION = re.compile(r"eval|valid|test|metric|accuracy|score|log|report", re.IGNORECASE)
_METRIC = re.compile(
    r"(.*_)?(loss(es)?|acc(uracy)?|correct|right|wrong|hits|totals?|counts?|seen|samples|metrics?|errors?|scores?|stats"
    r"|perplexity|ppl|f1|auc|elapsed|seconds|top\d+)(_.*)?",
    re.IGNORECASE,
)
_GRADIENT = re.compile(r"grad|param|weight|flat|bucket|state|model|buffer", re.IGNORECASE)


def may_exchange_gradients(syntax: Syntax, around: Extents) -> bool:
    """False if there are no exchanges, or only exchanges of metrics."""
    if not syntax.uses.keys().isdisjoint(_OTHERS):
        return True
    imported = [one for node in syntax.all(ast.ImportFrom) for one in node.names if one.name in _SUMS | _OTHERS]
    if any(one.asname is not None or one.name in _OTHERS for one in imported):
        return True
    calls = [one for one in syntax.calls if one.name in _SUMS]
    used = sum(len(syntax.uses.get(name, ())) for name in _SUMS)
    # A function that is used without a call may be called by another name.
    return used > len(calls) or any(not _is_of_a_metric(one, around) for one in calls)


def _is_of_a_metric(one: Call, around: Extents) -> bool:
    function = around.function(start(one.node))
    names = words(*one.node.args[:1], *(given.value for given in one.node.keywords if given.arg in ("tensor", "obj")))
    if any(_GRADIENT.search(name) for name in names):
        return False
    is_evaluation = function is not None and _EVALUATION.search(function.name) is not None
    return is_evaluation or any(_METRIC.fullmatch(name) for name in names)
