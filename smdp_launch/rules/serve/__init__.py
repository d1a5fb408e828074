"""Rules about the section ``serve``: they report, before the training, a model that cannot be served."""
