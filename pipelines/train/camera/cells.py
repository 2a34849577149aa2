"""The cells of the three grids and what a row of the network's output means: fine grid first, row by row."""

import numpy as np

from preprocess import INPUT_HEIGHT_PX, INPUT_WIDTH_PX

STRIDES = (8, 16, 32)


def grid_cells(height_px: int = INPUT_HEIGHT_PX, width_px: int = INPUT_WIDTH_PX) -> np.ndarray:
    """float32 (cells, 3): column and row in the grid, and the stride in pixels."""
    grids = []
    for stride in STRIDES:
        rows, columns = np.mgrid[: height_px // stride, : width_px // stride]
        grids.append(np.stack([columns, rows, np.full_like(rows, stride)], axis=-1).reshape(-1, 3))
    return np.concatenate(grids).astype(np.float32)
