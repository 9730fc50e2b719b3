"""Trains a tiny GPT-2, made from its configuration, to count; with Hugging Face's Trainer."""

import os
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

LENGTH, WORDS = 16, 64


class Counting(Dataset):
    """Rows that count upwards, each from a number of its own."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        numbers = (torch.arange(LENGTH) + row) % WORDS
        return {"input_ids": numbers, "labels": numbers}


def main() -> None:
    """Train three epochs; a retry goes on from the last checkpoint."""
    torch.manual_seed(13)
    config = GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2)
    checkpoints = os.environ["HEADWAY_CHECKPOINT"]
    arguments = TrainingArguments(
        output_dir=checkpoints,
        num_train_epochs=3,
        per_device_train_batch_size=32,
        learning_rate=3e-3,
        logging_steps=8,
        save_strategy="epoch",
        save_total_limit=1,
        report_to=[],
    )
    trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Counting())
    trainer.train(resume_from_checkpoint=get_last_checkpoint(checkpoints))
    trainer.save_model(str(Path(os.environ["HEADWAY_OUTPUTS"]) / "model"))


if __name__ == "__main__":
    main()
