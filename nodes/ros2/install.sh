#!/usr/bin/env bash
# Puts the node where `ros2 run` and `ros2 launch` look for packages:
#
#   nodes/ros2/install.sh PREFIX [BINARY]
#
# PREFIX then has to be in AMENT_PREFIX_PATH. BINARY is target/release/sensorium_ros2 unless another one is named.
set -euo pipefail
if [ $# -lt 1 ]; then
    echo "usage: $0 PREFIX [BINARY]" >&2
    exit 2
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
prefix=$1
binary=${2:-$root/target/release/sensorium_ros2}
share=$prefix/share/sensorium_ros2

install -D -m 755 "$binary" "$prefix/lib/sensorium_ros2/sensorium_ros2"
install -D -m 644 "$root/nodes/ros2/package.xml" "$share/package.xml"
# The launch files look for pipelines beside their own folder, and pipelines for weights below theirs.
install -D -m 644 -t "$share/launch" "$root"/launch/*.launch.xml
install -D -m 644 -t "$share/pipelines" "$root"/pipelines/{lidar_centerpoint,tensorrt_yolox}.yaml
install -D -m 644 -t "$share/pipelines/weights" "$root"/pipelines/weights/*.safetensors
# An empty file of the package's name is how ROS 2 knows what is installed.
install -D -m 644 /dev/null "$prefix/share/ament_index/resource_index/packages/sensorium_ros2"
