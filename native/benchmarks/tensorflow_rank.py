"""A rank of the benchmark tensorflow_step.py: exchanges a model's gradients and prints each step's seconds as JSON.

Usage: ``python tensorflow_rank.py smdp|ring STEPS``. The gradients take almost no time to compute, so a step's time is
its exchange. Values are checked after the timing.
"""

import json
import os
import sys
import time

import tensorflow as tf

from smdp_launch.scaling.traces import bert_base

who, steps = sys.argv[1], int(sys.argv[2])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if who == "ring":
    cluster = {"worker": os.environ["WORKERS"].split(",")}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})

tf.config.threading.set_inter_op_parallelism_threads(2)
tf.config.threading.set_intra_op_parallelism_threads(1)

if who == "smdp":
    import smdistributed.dataparallel.tensorflow as sdp

    sdp.init()
    variables = [tf.Variable(tf.zeros(shape)) for shape in bert_base()]

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(one * x) for one in variables])
        gradients = sdp.DistributedGradientTape(tape).gradient(loss, variables)
        return [tf.reshape(one, [-1])[0] for one in gradients]

else:
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(shape)) for shape in bert_base()]

    def replica_step(x):
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(one * x) for one in variables])
        gradients = tape.gradient(loss, variables)
        context = tf.distribute.get_replica_context()
        averages = context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients, options)
        return [tf.reshape(one, [-1])[0] for one in averages]

    @tf.function
    def step(x):
        return strategy.run(replica_step, (x,))


seconds = []
for count in range(steps):
    began = time.perf_counter()
    found = step(tf.constant(float(rank + count)))
    values = [float(one) for one in found]
    seconds.append(time.perf_counter() - began)
    wanted = sum(one + count for one in range(size)) / size
    assert all(abs(value - wanted) < 1e-4 * max(1.0, wanted) for value in values), (count, wanted, values[:5])
print(json.dumps({"seconds": seconds}), flush=True)
