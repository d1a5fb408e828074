"""The data and the model of bert_trainer.py and bert_loop.py: reviews of a channel, and a BERT that classifies them."""

import csv
import os
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch.utils.data import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

LABELS = {0: "negative", 1: "positive"}
MOST_TOKENS = 64


def read_channel(folder: Path) -> tuple[list[str], list[int]]:
    """Texts and labels of reviews.csv, whose columns are text and label."""
    with (folder / "reviews.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [one["text"] for one in rows], [int(one["label"]) for one in rows]


class Reviews(Dataset):
    """Each item is a review as token numbers, with its label. Batches are padded by DataCollatorWithPadding."""

    def __init__(self, folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
        texts, self.labels = read_channel(folder)
        self.encoded = tokenizer(texts, truncation=True, max_length=MOST_TOKENS)["input_ids"]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict:
        tokens = self.encoded[index]
        return {"input_ids": tokens, "attention_mask": [1] * len(tokens), "labels": self.labels[index]}


def load_model(name_or_path: str, train: Path) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """A pretrained model and its tokenizer.

    Args:
        name_or_path: a folder, the name of a channel with the files of a model, or a name on the Hugging Face Hub.
            Empty: a small BERT with random weights, whose vocabulary is the words of the channel ``train``.
    """
    if name_or_path:
        name_or_path = os.environ.get(f"SM_CHANNEL_{name_or_path.upper()}", name_or_path)
        kinds = {"num_labels": len(LABELS), "id2label": LABELS, "label2id": {one: key for key, one in LABELS.items()}}
        model = AutoModelForSequenceClassification.from_pretrained(name_or_path, **kinds)
        return AutoTokenizer.from_pretrained(name_or_path), model
    tokenizer = make_tokenizer(read_channel(train)[0])
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=MOST_TOKENS,
        id2label=LABELS,
        label2id={one: key for key, one in LABELS.items()},
    )
    return tokenizer, BertForSequenceClassification(config)


def make_tokenizer(texts: list[str]) -> PreTrainedTokenizerBase:
    """A tokenizer with a token for each word, the same on every worker. BERT's own has parts of words."""
    words = sorted({word for text in texts for word in text.lower().split()})
    numbers = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(one, numbers[one]) for one in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=MOST_TOKENS, **special)
