"""The first generation of SageMaker's data parallel library: a module of its own and a wrapper of its own.

Scripts know it by the import paths below ``smdistributed.dataparallel.torch``; everything here forwards to
``torch.distributed`` with the backend ``smddp``, so a script may use both.
"""
