"""Trains the network on simulated frames and writes a checkpoint.

    python train.py --frames frames --out yolox_sim.pt [--steps 6000] [--seed 1] [--resume]

The same frames, seed, steps, thread count and kind of processor give the same weights. The checkpoint is written every
few steps; with --resume, training goes on from it as if it had not stopped. Until the rate begins to fall, it makes no
difference how many steps there are to be, so there can still be more or fewer then.
"""

import argparse
import copy
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import torch

from batches import WHOLE_FRAME_STEPS, training_batches
from frames import FrameFolder
from loss import loss_terms
from model import Yolox

PEAK_RATE = 2e-3
WEIGHT_DECAY = 0.01
WARM_UP_STEPS = 200
# The rate falls to nothing while the network sees whole frames.
FALLING_STEPS = WHOLE_FRAME_STEPS
GRADIENT_LIMIT = 20.0
AVERAGE_DECAY = 0.995
REPORT_EVERY = 100


@dataclass(frozen=True)
class Notes:
    """How a network was trained."""

    seed: int
    steps: int
    frames: int
    frames_seed: int


class Training:
    """The network in training, the running mean of its weights, which is what is kept of it, and the optimiser."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = Yolox()
        self.average = copy.deepcopy(self.model).eval()
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=PEAK_RATE, weight_decay=WEIGHT_DECAY)
        self.steps_done = 0

    def save(self, path: Path, notes: Notes) -> None:
        """Writes all that `resume` needs; `export.py` reads the mean as `model`."""
        state = {"model": self.average.state_dict(), "notes": asdict(notes), "steps_done": self.steps_done}
        state |= {"in_training": self.model.state_dict(), "optimiser": self.optimiser.state_dict()}
        torch.save(state, path)

    def resume(self, path: Path) -> None:
        """Goes back to where `save` was called."""
        state = torch.load(path, weights_only=True)
        self.average.load_state_dict(state["model"])
        self.model.load_state_dict(state["in_training"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.steps_done = state["steps_done"]

    def step(self, loss: torch.Tensor, rate: float) -> None:
        """Takes a step against the gradient of the loss, and takes it into account in the mean."""
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), GRADIENT_LIMIT)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.step()
        self.steps_done += 1
        self._average()

    @torch.no_grad()
    def _average(self) -> None:
        # The mean of the first steps is short, so that it forgets how it began.
        decay = min(AVERAGE_DECAY, self.steps_done / (10 + self.steps_done))
        for mean, now in zip(self.average.state_dict().values(), self.model.state_dict().values()):
            if mean.dtype.is_floating_point:
                mean.lerp_(now, 1 - decay)


def rate_of(step: int, steps: int) -> float:
    """The learning rate of a step, counted from 0: it rises, stays, falls in a line to nothing."""
    return PEAK_RATE * min(1.0, (step + 1) / WARM_UP_STEPS, (steps - step) / FALLING_STEPS)


def train(training: Training, frames: FrameFolder, notes: Notes, out: Path) -> None:
    """The steps that are still to do. Writes the checkpoint now and then, and at the end."""
    begun, recent = time.monotonic(), []
    for batch in training_batches(frames, training.steps_done, notes.steps, notes.seed):
        with torch.autocast("cpu", torch.bfloat16):
            maps = training.model(batch.images)
        terms = loss_terms(maps, batch.truths, *batch.images.shape[2:])
        training.step(sum(terms.values()), rate_of(training.steps_done, notes.steps))
        recent.append({name: float(term.detach()) for name, term in terms.items()})
        if training.steps_done % REPORT_EVERY == 0 or training.steps_done == notes.steps:
            minutes = (time.monotonic() - begun) / 60
            print(f"{training.steps_done}/{notes.steps}  {minutes:.1f} min  {_means(recent)}", flush=True)
            recent = []
            training.save(out, notes)


def _means(terms: list[dict[str, float]]) -> str:
    names = dict.fromkeys(name for step in terms for name in step)
    return "  ".join(f"{name} {sum(step.get(name, 0.0) for step in terms) / len(terms):.3f}" for name in names)


def main() -> None:
    """Trains and writes the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=Path, required=True, help="folder of `sensorium sim frames`")
    parser.add_argument("--out", type=Path, required=True, help="the checkpoint to write")
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    cv2.setNumThreads(1)
    frames = FrameFolder(options.frames)
    training = Training(options.seed)
    if options.resume:
        training.resume(options.out)
    train(training, frames, Notes(options.seed, options.steps, len(frames), frames.meta["seed"]), options.out)


if __name__ == "__main__":
    main()
