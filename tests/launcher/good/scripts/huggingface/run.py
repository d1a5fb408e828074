"""Stands for a fine-tuning script of transformers: the job files beside this folder are about what is around it."""

from transformers import HfArgumentParser, Trainer, TrainingArguments

(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(args=arguments).train()
