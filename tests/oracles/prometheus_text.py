"""Reads a page of metrics as Prometheus' own client library does, and prints its families as JSON.

usage: prometheus_text.py FILE
"""

import json
import math
import sys

from prometheus_client.parser import text_string_to_metric_families

with open(sys.argv[1], encoding="utf-8") as file:
    text = file.read()
assert text.endswith("\n"), "the last line is whole"
families = {}
for family in text_string_to_metric_families(text):
    assert family.name not in families, f"{family.name} comes twice"
    assert family.documentation, f"{family.name} has no help"
    assert family.type in ("counter", "gauge", "histogram"), f"{family.name} is {family.type}"
    samples, seen = [], set()
    for sample in family.samples:
        key = (sample.name, tuple(sorted(sample.labels.items())))
        assert key not in seen, f"{key} comes twice"
        seen.add(key)
        assert math.isfinite(sample.value), key
        if family.type == "counter":
            assert sample.name == family.name + "_total" and sample.value >= 0, key
        samples.append({"name": sample.name, "labels": sample.labels, "value": sample.value})
    if family.type == "histogram":
        groups = {}
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k != "le"}
            group = groups.setdefault(tuple(sorted(labels.items())), {"buckets": []})
            if sample.name.endswith("_bucket"):
                group["buckets"].append((float(sample.labels["le"]), sample.value))
            else:
                group[sample.name.rsplit("_", 1)[1]] = sample.value
        for labels, group in groups.items():
            bounds, counts = zip(*group["buckets"])
            assert list(bounds) == sorted(bounds) and bounds[-1] == math.inf, (family.name, labels)
            assert list(counts) == sorted(counts), (family.name, labels)
            assert counts[-1] == group["count"], (family.name, labels)
            assert len(bounds) > 2 and group["sum"] >= 0, (family.name, labels)
    families[family.name] = {"type": family.type, "samples": samples}
json.dump(families, sys.stdout)
