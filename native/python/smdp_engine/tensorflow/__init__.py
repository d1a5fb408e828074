"""SageMaker's data parallel library for TensorFlow 2 and Keras, on this engine.

Scripts import it as ``smdistributed.dataparallel.tensorflow``. Custom operations (``native/adapters/tensorflow``)
exchange the gradients of a model while the backward pass continues, in fusion buffers keyed by the gradient's index, so
the ranks may compute the gradients in different orders.
"""
