"""The building blocks of rules: the facts of a job, and the ``rule`` decorator."""
