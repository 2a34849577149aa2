"""Trains the network on simulated scenes and writes a checkpoint.

    python train.py --scenes scenes --out centerpoint_sim.pt [--steps 3000] [--seed 1]

The same scenes, seed, steps, thread count and kind of processor give the same weights.
"""

import argparse
import time
from pathlib import Path

import torch

from batches import training_batches
from model import CenterPoint, loss_terms
from scenes import SceneFolder

BATCH_SIZE = 4
PEAK_RATE = 2e-3
WEIGHT_DECAY = 0.01
WARM_UP = 0.15
GRADIENT_LIMIT = 10.0
LOG_EVERY = 50


def train(scenes: SceneFolder, steps: int, seed: int) -> CenterPoint:
    """AdamW with one cycle of the learning rate: a linear warm-up, then a cosine down to nothing."""
    torch.manual_seed(seed)
    model = CenterPoint()
    optimiser = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, PEAK_RATE, total_steps=steps, pct_start=WARM_UP, cycle_momentum=False
    )
    begun = time.monotonic()
    sums: dict[str, float] = {}
    for step, (batch, targets) in enumerate(training_batches(scenes, steps, BATCH_SIZE, seed), start=1):
        terms = loss_terms(model(batch, targets.cells), targets)
        optimiser.zero_grad()
        sum(terms.values()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_LIMIT)
        optimiser.step()
        schedule.step()
        for name, term in terms.items():
            sums[name] = sums.get(name, 0.0) + float(term.detach())
        if step % LOG_EVERY == 0 or step == steps:
            shown = "  ".join(f"{name} {total / LOG_EVERY:.3f}" for name, total in sums.items())
            print(f"{step}/{steps}  {(time.monotonic() - begun) / 60:.1f} min  {shown}", flush=True)
            sums = {}
    return model


def main() -> None:
    """Trains and writes the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=Path, required=True, help="folder of `sensorium sim scenes`")
    parser.add_argument("--out", type=Path, required=True, help="the checkpoint to write")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    scenes = SceneFolder(options.scenes)
    begun = time.monotonic()
    model = train(scenes, options.steps, options.seed)
    notes = {
        "seed": options.seed,
        "steps": options.steps,
        "scenes": len(scenes),
        "minutes": round((time.monotonic() - begun) / 60, 1),
    }
    torch.save({"model": model.state_dict(), "notes": notes}, options.out)


if __name__ == "__main__":
    main()
