"""Trains the network on simulated frames and writes a checkpoint.

    python train.py --frames frames --out yolox_sim.pt [--steps 3600] [--seed 1]

The same frames, seed, steps, thread count and kind of processor give the same weights.
"""

import argparse
import copy
import time
from pathlib import Path

import cv2
import torch

from batches import training_batches
from frames import FrameFolder
from loss import loss_terms
from model import Yolox

PEAK_RATE = 2e-3
WEIGHT_DECAY = 0.01
WARM_UP = 0.06
GRADIENT_LIMIT = 20.0
AVERAGE_DECAY = 0.995
LOG_EVERY = 100


class AverageModel:
    """The running mean of a model's weights over its last steps, which is what is kept of the training."""

    def __init__(self, model: Yolox) -> None:
        self.model = copy.deepcopy(model).eval()
        self._steps = 0

    @torch.no_grad()
    def update(self, model: Yolox) -> None:
        """Takes one step into account; the mean of the first steps is short, so that it forgets how it began."""
        self._steps += 1
        decay = min(AVERAGE_DECAY, self._steps / (10 + self._steps))
        for mean, now in zip(self.model.state_dict().values(), model.state_dict().values()):
            if mean.dtype.is_floating_point:
                mean.lerp_(now, 1 - decay)


def train(frames: FrameFolder, steps: int, seed: int) -> Yolox:
    """AdamW with one cycle of the learning rate: a linear warm-up, then a cosine down to nothing."""
    torch.manual_seed(seed)
    model = Yolox()
    average = AverageModel(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, PEAK_RATE, total_steps=steps, pct_start=WARM_UP, cycle_momentum=False
    )
    begun = time.monotonic()
    recent: list[dict[str, float]] = []
    for step, batch in enumerate(training_batches(frames, steps, seed), start=1):
        with torch.autocast("cpu", torch.bfloat16):
            maps = model(batch.images)
        terms = loss_terms(maps, batch.truths, *batch.images.shape[2:])
        optimiser.zero_grad()
        sum(terms.values()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_LIMIT)
        optimiser.step()
        schedule.step()
        average.update(model)
        recent.append({name: float(term.detach()) for name, term in terms.items()})
        if step % LOG_EVERY == 0 or step == steps:
            print(f"{step}/{steps}  {(time.monotonic() - begun) / 60:.1f} min  {_means(recent)}", flush=True)
            recent = []
    return average.model


def _means(terms: list[dict[str, float]]) -> str:
    names = dict.fromkeys(name for step in terms for name in step)
    return "  ".join(f"{name} {sum(step.get(name, 0.0) for step in terms) / len(terms):.3f}" for name in names)


def main() -> None:
    """Trains and writes the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=Path, required=True, help="folder of `sensorium sim frames`")
    parser.add_argument("--out", type=Path, required=True, help="the checkpoint to write")
    parser.add_argument("--steps", type=int, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    cv2.setNumThreads(1)
    frames = FrameFolder(options.frames)
    begun = time.monotonic()
    model = train(frames, options.steps, options.seed)
    notes = {
        "seed": options.seed,
        "steps": options.steps,
        "frames": len(frames),
        "frames_seed": frames.meta["seed"],
        "minutes": round((time.monotonic() - begun) / 60, 1),
    }
    torch.save({"model": model.state_dict(), "notes": notes}, options.out)


if __name__ == "__main__":
    main()
