"""SageMaker's data parallel library for TensorFlow 2, and Keras, on this engine.

Scripts know it as ``smdistributed.dataparallel.tensorflow``. The gradients of a model are custom operations
(``native/adapters/tensorflow``): each is exchanged while the backward pass goes on, in fusion buffers keyed by
the gradient's index, so the ranks may compute them in different orders.
"""
