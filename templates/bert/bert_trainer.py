"""Fine-tunes a BERT that classifies reviews, with the Trainer of Hugging Face.

On SageMaker the Trainer finds the data parallel library by itself, from the variable SM_FRAMEWORK_PARAMS, and uses the
backend smddp. Each worker computes on the GPU of its LOCAL_RANK, or on the CPU if there is no GPU. ``--precision fp16``
or ``bf16``, or the key ``amp`` of the job file, turns automatic mixed precision on. The script also runs alone:
``python bert_trainer.py --train FOLDER --test FOLDER --model-dir FOLDER``.
"""

import argparse
import os
import tempfile
from pathlib import Path

import torch
from reviews import Reviews, load_model
from torch.nn.parallel import DistributedDataParallel
from transformers import DataCollatorWithPadding, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint
from transformers.utils import is_sagemaker_dp_enabled

from smdp_engine import progress

PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def parse_arguments() -> argparse.Namespace:
    environ = os.environ.get
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model_name_or_path", default="", help="a folder, a channel or a name on the Hub; empty: a small random BERT"
    )
    parser.add_argument("--epochs", type=float, default=6)
    parser.add_argument("--batch-size", type=int, default=16, help="reviews in one step, on each worker")
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--precision", choices=PRECISIONS, default=environ("SMDP_AMP", "fp32"), help="fp16 and bf16: mixed precision"
    )
    parser.add_argument("--train", type=Path, default=environ("SM_CHANNEL_TRAIN"))
    parser.add_argument("--test", type=Path, default=environ("SM_CHANNEL_TEST"))
    parser.add_argument("--model-dir", type=Path, default=environ("SM_MODEL_DIR"))
    parser.add_argument("--checkpoint-dir", type=Path, default=environ("SMDP_CHECKPOINT_DIR"))
    arguments = parser.parse_args()
    for name in ("train", "test", "model_dir"):
        if getattr(arguments, name) is None:
            parser.error(f"--{name.replace('_', '-')} is required outside a training job")
    return arguments


class Progress(TrainerCallback):
    """Reports the losses that the Trainer logs as progress events."""

    def on_log(self, args, state, control, logs=None, **others):
        if state.is_world_process_zero and logs and "loss" in logs:
            progress.step(state.global_step, state.max_steps, loss=float(logs["loss"]))


class AnyDeviceTrainer(Trainer):
    """With SageMaker's library, the Trainer puts each worker's model on a GPU. A local run may have none.

    The Trainer then also ignores mixed precision in the forward pass, and it has no scaler for fp16 on the CPU.
    """

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        if self.args.mixed_precision == "fp16" and self.accelerator.scaler is None:
            self.accelerator.native_amp = True
            self.accelerator.scaler = torch.amp.GradScaler(self.args.device.type)

    def autocast_smart_context_manager(self, cache_enabled=True):
        if self.args.mixed_precision == "no":
            return super().autocast_smart_context_manager(cache_enabled)
        dtype = PRECISIONS[self.args.mixed_precision]
        return torch.autocast(self.args.device.type, dtype=dtype, cache_enabled=cache_enabled)

    def _wrap_model(self, model, training=True, dataloader=None):
        if training and is_sagemaker_dp_enabled() and not torch.cuda.is_available():
            return DistributedDataParallel(model)
        return super()._wrap_model(model, training=training, dataloader=dataloader)


def main() -> None:
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        os.environ.update(ACCELERATE_TORCH_DEVICE="cpu", ACCELERATE_BYPASS_DEVICE_MAP="true")
    # TrainingArguments(bf16=True) refuses a host without a GPU.
    os.environ["ACCELERATE_MIXED_PRECISION"] = "no" if arguments.precision == "fp32" else arguments.precision
    set_seed(arguments.seed)
    tokenizer, model = load_model(arguments.model_name_or_path, arguments.train)
    checkpoints = str(arguments.checkpoint_dir or tempfile.mkdtemp())
    trainer = AnyDeviceTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=checkpoints,
            num_train_epochs=arguments.epochs,
            per_device_train_batch_size=arguments.batch_size,
            per_device_eval_batch_size=100,
            learning_rate=arguments.lr,
            seed=arguments.seed,
            average_tokens_across_devices=False,  # the loss is a mean over reviews, not over tokens
            logging_steps=5,
            save_strategy="epoch" if arguments.checkpoint_dir else "no",
            save_total_limit=1,
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=torch.cuda.is_available(),
        ),
        train_dataset=Reviews(arguments.train, tokenizer),
        eval_dataset=Reviews(arguments.test, tokenizer),
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
        compute_metrics=lambda one: {"accuracy": float((one.predictions.argmax(1) == one.label_ids).mean())},
        callbacks=[Progress()],
    )
    if trainer.is_world_process_zero():
        print(f"computes on {trainer.args.device} in {arguments.precision}")
    trainer.train(resume_from_checkpoint=get_last_checkpoint(checkpoints))
    share, count = trainer.evaluate()["eval_accuracy"], len(trainer.eval_dataset)
    if trainer.is_world_process_zero():
        print(f"accuracy {share:.4f} on {count} reviews that are not in the training channel")
        progress.emit("result", accuracy=share, reviews=count)
    trainer.save_model(str(arguments.model_dir))  # with the tokenizer; only one worker writes


if __name__ == "__main__":
    main()
