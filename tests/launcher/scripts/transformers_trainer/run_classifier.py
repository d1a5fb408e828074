"""Fine-tunes a classifier with the Hugging Face Trainer."""

import sys

from settings import parser
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments


def main(arguments):
    options = parser().parse_args(arguments)
    model = AutoModelForSequenceClassification.from_pretrained(options.model_name)
    settings = TrainingArguments(
        output_dir="/opt/ml/checkpoints", num_train_epochs=options.epochs, learning_rate=options.learning_rate
    )
    Trainer(model=model, args=settings).train()


if __name__ == "__main__":
    main(sys.argv[1:])
