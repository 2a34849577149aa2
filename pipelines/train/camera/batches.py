"""Batches of frames for training, prepared in the background."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from augment import Sample, whole, window
from frames import FrameFolder

WINDOWS_PER_BATCH = 8
# The last steps see whole frames, as the deployed network does. They take about as long as as many steps of windows.
FRAMES_PER_BATCH = 4
WHOLE_FRAME_STEPS = 800
AHEAD = 3


@dataclass(frozen=True)
class Truth:
    """The objects of one image: float32 (K, 4) edges in pixels of the image, int64 (K) labels, and the edges (I, 4) of
    objects that are neither to be found nor to be denied.
    """

    edges: torch.Tensor
    labels: torch.Tensor
    ignored_edges: torch.Tensor

    @classmethod
    def of(cls, sample: Sample) -> "Truth":
        """The objects of a sample."""
        return cls(
            torch.from_numpy(sample.edges[sample.learnt]),
            torch.from_numpy(sample.labels[sample.learnt]),
            torch.from_numpy(sample.edges[~sample.learnt]),
        )


@dataclass(frozen=True)
class Batch:
    """images: float32 (B, 3, height, width), B, G, R, 0 to 255, channels last in memory; and the truth of each."""

    images: torch.Tensor
    truths: list[Truth]


def training_batches(folder: FrameFolder, first: int, steps: int, seed: int) -> Iterator[Batch]:
    """The batches of the steps from `first` up to `steps`: shuffled, augmented frames, the same ones for the same seed.

    But for the last `WHOLE_FRAME_STEPS`, what a step sees does not depend on how many there are to be.
    """
    window_steps = max(steps - WHOLE_FRAME_STEPS, 0)
    sizes = [WINDOWS_PER_BATCH] * window_steps + [FRAMES_PER_BATCH] * (steps - window_steps)
    starts = np.cumsum([0] + sizes)
    order_rng = np.random.default_rng(seed)
    epochs = -(-int(starts[-1]) // len(folder))
    order = np.concatenate([order_rng.permutation(len(folder)) for _ in range(epochs)])

    def prepare(step: int) -> Batch:
        rng = np.random.default_rng([seed, step])
        changed = window if step < window_steps else whole
        samples = [changed(folder[index], rng) for index in order[starts[step] : starts[step + 1]]]
        images = torch.from_numpy(np.stack([sample.image for sample in samples]))
        return Batch(images.permute(0, 3, 1, 2).float(), [Truth.of(sample) for sample in samples])

    with ThreadPoolExecutor(max_workers=1) as background:
        ahead = [background.submit(prepare, step) for step in range(first, min(first + AHEAD, steps))]
        for step in range(first, steps):
            batch = ahead.pop(0).result()
            if step + AHEAD < steps:
                ahead.append(background.submit(prepare, step + AHEAD))
            yield batch
