#!/bin/sh
# An encoder of your own, fitted to your photographs without labels and exported:
#   examples/own_encoder.sh PHOTOGRAPHS CHECKPOINT ARCHITECTURE SIDE
# CHECKPOINT is a file of weights, ARCHITECTURE its name in timm.
set -e
cd "$(dirname "$0")/.."
polygrain new mine --images "$1" --encoder "$2" --architecture "$3" --side "$4" --mean .5 --std .5
polygrain run --profile mine
polygrain export profiles/mine/data/choice -o exported
