"""Batches of scenes for training, prepared in the background."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from pillars import GRID, Pillars, pillarise
from scenes import SceneFolder, augmented
from targets import MAP, Targets, make_targets


@dataclass(frozen=True)
class PillarBatch:
    """The pillars of a few scenes in a row: `Pillars` with cells counted through all scenes."""

    features: torch.Tensor
    starts: torch.Tensor
    cells: torch.Tensor
    scenes: int

    @classmethod
    def of(cls, pillars: list[Pillars]) -> "PillarBatch":
        """Puts the scenes one after the other."""
        rows = np.cumsum([0] + [len(one.features) for one in pillars])
        starts = [one.starts[:-1] + row for one, row in zip(pillars, rows)]
        return cls(
            torch.from_numpy(np.concatenate([one.features for one in pillars])),
            torch.from_numpy(np.concatenate([*starts, rows[-1:]])),
            torch.from_numpy(np.concatenate([one.cells + scene * GRID * GRID for scene, one in enumerate(pillars)])),
            len(pillars),
        )


@dataclass(frozen=True)
class TargetBatch:
    """The targets of the same scenes, likewise in a row."""

    heat: torch.Tensor
    cells: torch.Tensor
    values: torch.Tensor
    weights: torch.Tensor
    has_heading: torch.Tensor

    @classmethod
    def of(cls, targets: list[Targets]) -> "TargetBatch":
        """Puts the scenes one after the other."""
        return cls(
            torch.from_numpy(np.concatenate([one.heat for one in targets])),
            torch.from_numpy(np.concatenate([one.cells + scene * MAP * MAP for scene, one in enumerate(targets)])),
            torch.from_numpy(np.concatenate([one.values for one in targets])),
            torch.from_numpy(np.concatenate([one.weights for one in targets])),
            torch.from_numpy(np.concatenate([one.has_heading for one in targets])),
        )


def training_batches(
    folder: SceneFolder, steps: int, batch_size: int, seed: int
) -> Iterator[tuple[PillarBatch, TargetBatch]]:
    """`steps` batches of shuffled, augmented scenes; the same ones for the same seed."""
    order_rng = np.random.default_rng(seed)
    epochs = -(-steps * batch_size // len(folder))
    order = np.concatenate([order_rng.permutation(len(folder)) for _ in range(epochs)])

    def prepare(step: int) -> tuple[PillarBatch, TargetBatch]:
        rng = np.random.default_rng([seed, step])
        scenes = [augmented(folder[index], rng) for index in order[step * batch_size : (step + 1) * batch_size]]
        pillars = [pillarise(scene.points, rng.integers(2**63)) for scene in scenes]
        return PillarBatch.of(pillars), TargetBatch.of([make_targets(scene.boxes) for scene in scenes])

    with ThreadPoolExecutor(max_workers=1) as background:
        ahead = [background.submit(prepare, step) for step in range(min(3, steps))]
        for step in range(steps):
            batch = ahead.pop(0).result()
            if step + 3 < steps:
                ahead.append(background.submit(prepare, step + 3))
            yield batch
