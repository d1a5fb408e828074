"""Stands for a TensorFlow 2 training script: the job files beside this folder are about what is around it."""

import argparse

import smdistributed.dataparallel.tensorflow as sdp
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir")
arguments, _ = parser.parse_known_args()
sdp.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[sdp.local_rank()], "GPU")
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
sdp.broadcast_variables(model.variables, root_rank=0)
