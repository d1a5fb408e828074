"""The first generation of SageMaker's data parallel library, with its own module and its own wrapper.

Scripts import it from ``smdistributed.dataparallel.torch``. All functions call ``torch.distributed`` with the backend
``smddp``, so a script may use both.
"""
