"""Lightning: one device a worker, data by cairn.data.Sampler."""
import sys
import warnings

import lightning
from torch.utils.data import DataLoader

import cairn
from trainers.problem import BATCH, CLIP, EPOCHS, Data, Net, judge, sgd

warnings.filterwarnings("ignore")


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net(cairn.rank())

    def training_step(self, batch):
        return self.net(**batch)["loss"]

    def configure_optimizers(self):
        return cairn.DistributedOptimizer(sgd(self.net), self.net)

    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None):
        optimizer.clip_grad_norm_(gradient_clip_val)

    def on_train_epoch_start(self):
        self.trainer.train_dataloader.sampler.set_epoch(self.current_epoch)


cairn.init()
data, module = Data(), Module()
loader = DataLoader(data, batch_size=BATCH, sampler=cairn.data.Sampler(data))
trainer = lightning.Trainer(
    accelerator="cpu", devices=1, max_epochs=EPOCHS, gradient_clip_val=CLIP, logger=False,
    enable_checkpointing=cairn.rank() == 0, default_root_dir=sys.argv[1], enable_progress_bar=False,
    enable_model_summary=False)
trainer.fit(module, loader)
judge(module.net, data)
