"""transformers.Trainer. Arguments: a folder, and "plain" to leave the trainer as it is."""
import sys

import torch
import transformers

import cairn
import cairn.compat.accelerate
from trainers.problem import BATCH, CLIP, EPOCHS, RATE, Data, Net, judge, sgd

cairn.init()
data, model = Data(), Net(cairn.rank())
optimizer = cairn.DistributedOptimizer(sgd(model), model)
arguments = transformers.TrainingArguments(
    output_dir=sys.argv[1], per_device_train_batch_size=BATCH, num_train_epochs=EPOCHS, learning_rate=RATE,
    max_grad_norm=CLIP, lr_scheduler_type="constant", use_cpu=True, report_to=[], save_strategy="epoch",
    logging_strategy="no", disable_tqdm=True, remove_unused_columns=False, seed=5)
trainer = transformers.Trainer(model, arguments, train_dataset=data, optimizers=(optimizer, None))
if sys.argv[2:] != ["plain"]:
    cairn.compat.accelerate.adapt(trainer)
trainer.train()
judge(model, data)
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
