import smdistributed.dataparallel.tensorflow as hvd
import tensorflow as tf

hvd.init()
model = tf.keras.applications.ResNet50()
model.compile(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), loss="mse")
start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
model.fit(tf.data.Dataset.load("/opt/ml/input/data/train"), callbacks=[start])
