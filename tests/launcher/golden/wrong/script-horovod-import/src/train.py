import smdistributed.dataparallel.tensorflow as hvd
import tensorflow as tf

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
model = tf.keras.applications.ResNet50()
model.compile(optimizer=hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), loss="mse")
start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
model.fit(tf.data.Dataset.load("/opt/ml/input/data/train"), callbacks=[start])
