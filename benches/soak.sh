#!/bin/sh
# A soak of half an hour (or of the seconds given) on a machine that does nothing else: memory, latency, a drawing of both.
#
#   benches/soak.sh [SECONDS] [FOLDER]
set -eu
cd "$(dirname "$0")/.."
SENSORIUM_SOAK_S="${1:-1800}" SENSORIUM_SOAK_OUT="${2:-target/soak}" \
    exec cargo test --release --test soak -- --nocapture
