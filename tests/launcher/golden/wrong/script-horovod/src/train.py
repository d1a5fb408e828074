import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
model = tf.keras.applications.ResNet50()
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy")
model.fit(tf.data.Dataset.load("/opt/ml/input/data/train"))
