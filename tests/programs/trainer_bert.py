"""Hugging Face's Trainer on a tiny BERT with random weights and random words."""

import os
import sys

import injected
import torch
import transformers
from torch.utils.data import Dataset

WORDS = 100


class RandomSentences(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(1)
        self.words = torch.randint(5, WORDS, (count, 16), generator=generator)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        words = self.words[index]
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": words[0] % 2}


class PrintLoss(transformers.TrainerCallback):
    def on_log(self, arguments, state, control, logs=None, **others):
        # The Trainer logs rank 0's training loss if it was started for SMDDP, and else the mean.
        if state.is_world_process_zero and "eval_loss" in logs:
            print(f"loss {logs['eval_loss']:.9f}", flush=True)


transformers.set_seed(1)
config = transformers.BertConfig(
    vocab_size=WORDS,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    hidden_dropout_prob=0,
    attention_probs_dropout_prob=0,
)
trainer = transformers.Trainer(
    model=injected.model(transformers.BertForSequenceClassification(config)),
    args=transformers.TrainingArguments(
        output_dir=sys.argv[1],
        per_device_train_batch_size=8,
        max_steps=10,
        learning_rate=1e-3,
        eval_strategy="steps",
        eval_steps=1,
        save_steps=10,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
        dataloader_num_workers=injected.LOADER_WORKERS,
    ),
    train_dataset=injected.training_data(RandomSentences(320), 8),
    eval_dataset=RandomSentences(32),
    callbacks=[PrintLoss()],
)
trainer.train()
if os.environ["RANK"] == "0":
    print(f"backend {torch.distributed.get_backend()}")
