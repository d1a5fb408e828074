import smdistributed.dataparallel.tensorflow as sdp
import tensorflow as tf

sdp.init()
model = tf.keras.applications.ResNet50()
model.compile(optimizer=sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), loss="mse")
start = sdp.BroadcastVariablesCallback(root_rank=0)
model.fit(tf.data.Dataset.load("/opt/ml/input/data/train"), callbacks=[start])
