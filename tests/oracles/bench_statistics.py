#!/usr/bin/env python3
"""Recomputes the statistics of a benchmark's result with NumPy and the standard library; exit code 1 where they differ.

    python bench_statistics.py bench.json
"""

import json
import math
import sys
from statistics import NormalDist

import numpy as np


def binomial_cdf(n, p, k):
    return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))


def main():
    result = json.load(open(sys.argv[1]))
    latencies = np.array(result["latencies_us"], float)
    wrong = []

    def check(what, ours, theirs, tolerance):
        if abs(ours - theirs) > tolerance:
            wrong.append(f"{what}: {ours}, NumPy says {theirs}")

    for value in result["percentiles"]:
        p = value["p"]
        # Latencies are stored to the microsecond, percentiles were taken before.
        check(f"p{p}", value["value_us"], np.quantile(latencies, p, method="inverted_cdf"), 0.51)
        z = NormalDist().inv_cdf(0.995)
        required = math.ceil(z * z * p * (1 - p) / ((1 - p) / 20) ** 2)
        check(f"samples for p{p}", value["required"], math.ceil(required / 8192) * 8192, 0)
        ordered = np.sort(latencies)
        # Outermost ranks (from 1) that enclose the percentile: at most 0.5 % lies beyond each.
        n = len(ordered)
        low = max((r for r in range(1, n + 1) if binomial_cdf(n, p, r - 1) <= 0.005), default=0)
        high = min((r for r in range(1, n + 1) if 1 - binomial_cdf(n, p, r - 1) <= 0.005), default=n + 1)
        if (low < 1 or high > n) != (value["interval_us"] is None):
            wrong.append(f"interval of p{p}: {value['interval_us']}, ranks {low} and {high} of {n}")
        elif value["interval_us"]:
            check(f"low of p{p}", value["interval_us"][0], ordered[low - 1], 0.51)
            check(f"high of p{p}", value["interval_us"][1], ordered[high - 1], 0.51)
    check("mean", result["latency"]["mean_us"], latencies.mean(), 0.51)
    check("largest", result["latency"]["max_us"], latencies.max(), 0.51)
    print("\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
