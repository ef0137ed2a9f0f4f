"""A program of somebody else's: transformers' own Trainer, with one line of ours. Run by test_callback.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = sys.argv[1]
sys.path.insert(0, ROOT)

import msgspec  # noqa: E402
import torch  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments  # noqa: E402

from checkpoints.store.open import open_store  # noqa: E402
from training.config.tree import Model  # noqa: E402
from training.exporter.callback import ExporterCallback  # noqa: E402
from training.exporter.settings import ExportSettings  # noqa: E402
from training.launch.models import source_of  # noqa: E402


def main() -> None:
    settings = ExportSettings.model_validate(msgspec.json.decode(sys.argv[2]))
    source = Path(source_of(Model(name="tiny-llama")))
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    if settings.weights.value in ("merged", "adapter"):
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    torch.manual_seed(1)
    ids = torch.randint(3, 200, (16, 16))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            "output", max_steps=4, per_device_train_batch_size=2, learning_rate=1e-3, use_cpu=True,
            report_to="none", save_strategy="no", logging_steps=1, dataloader_pin_memory=False,
        ),
        train_dataset=[{"input_ids": row, "labels": row} for row in ids],
        processing_class=AutoTokenizer.from_pretrained(source),
    )  # fmt: skip
    trainer.add_callback(ExporterCallback(settings))
    trainer.train()
    print(
        msgspec.json.encode(
            {"steps": trainer.state.global_step, **compared(settings, model, source, ids)}
        ).decode()
    )


def compared(settings: ExportSettings, model: Any, source: Path, ids: Any) -> dict[str, object]:
    """How the newest version differs from the model in memory and from the source's files."""
    if settings.weights.value == "adapter" or not Path(settings.store).is_dir():
        return {}
    store = open_store(settings.store, settings.model)
    newest = store.newest()
    assert newest is not None
    folder = store.files.local(newest.data)
    assert folder is not None
    again = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        theirs, ours = (one(ids[:2]).logits.log_softmax(-1) for one in (again, model.eval()))
    names = [path.name for path in sorted(source.iterdir()) if (folder / path.name).exists()]
    same = [name for name in names if (folder / name).read_bytes() == (source / name).read_bytes()]
    return {"difference": float((theirs - ours).abs().mean()), "same_files": same}


if __name__ == "__main__":
    main()
