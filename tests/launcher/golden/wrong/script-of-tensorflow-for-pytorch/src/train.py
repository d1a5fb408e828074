import tensorflow as tf

model = tf.keras.applications.ResNet50()
