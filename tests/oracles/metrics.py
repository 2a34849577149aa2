"""Metrics by NumPy in float64: metrics.py CASES.

CASES is a JSON list of {"metric": .., "test": {"shape": .., "values": ..}, "reference": .., and the metric's own
arguments}. The answers go to standard output as a JSON list. Not-a-number is null both ways.
"""

import json
import sys

import numpy as np


def array(case, name):
    given = case[name]
    values = [np.nan if v is None else v for v in given["values"]]
    return np.array(values, dtype=np.float64).reshape(given["shape"])


def pcc(t, r):
    if not (np.isfinite(t).all() and np.isfinite(r).all()):
        return np.nan
    return np.corrcoef(t.ravel(), r.ravel())[0, 1]


def answer(case):
    metric = case["metric"]
    t, r = array(case, "test"), array(case, "reference")
    mask = array(case, "mask").astype(bool) if "mask" in case else None
    if metric == "pcc":
        return [pcc(t, r)]
    if metric == "masked_pcc":
        mask = np.broadcast_to(mask, t.shape)
        return [pcc(t[mask], r[mask])]
    if metric == "valid_row_pcc":
        rows = case["rows"]
        return [pcc(np.take(t, rows, axis=case["axis"]), np.take(r, rows, axis=case["axis"]))]
    if metric == "error_stats":
        return [
            pcc(t, r),
            np.abs(t - r).max(),
            np.abs(t - r).mean(),
            np.linalg.norm((t - r).ravel()) / np.linalg.norm(r.ravel()),
        ]
    if metric == "argmax_agreement":
        same = t.argmax(case["axis"]) == r.argmax(case["axis"])
        return [same[mask].mean() if mask is not None else same.mean()]
    if metric == "label_agreement":
        same = t == r
        return [same[mask].mean() if mask is not None else same.mean()]
    if metric == "mask_iou":
        a, b = t != 0, r != 0
        return [(a & b).sum() / (a | b).sum()]
    if metric == "mean_iou":
        keep = r != case["ignore"]
        t, r = t[keep], r[keep]
        ious = []
        for c in range(case["classes"]):
            union = ((t == c) | (r == c)).sum()
            ious.append(((t == c) & (r == c)).sum() / union if union else np.nan)
        return [np.nanmean(ious), *ious]
    if metric == "box_iou_xyxy":
        low = np.maximum(t[:, None, :2], r[None, :, :2])
        high = np.minimum(t[:, None, 2:], r[None, :, 2:])
        both = np.prod(np.clip(high - low, 0, None), axis=-1)
        area = lambda b: np.prod(b[:, 2:] - b[:, :2], axis=-1)
        return (both / (area(t)[:, None] + area(r)[None] - both)).ravel().tolist()
    if metric == "topk_set_overlap":
        top = lambda x: set(np.argsort(-x.ravel(), kind="stable")[: case["k"]].tolist())
        return [len(top(t) & top(r)) / case["k"]]
    if metric == "ade_fde":
        d = np.linalg.norm(t[..., : case["dims"]] - r[..., : case["dims"]], axis=-1)
        return [d.mean(), d[..., -1].mean()]
    raise ValueError(metric)


with open(sys.argv[1], encoding="utf-8") as file:
    cases = json.load(file)
json.dump([[None if np.isnan(v) else float(v) for v in answer(case)] for case in cases], sys.stdout)
