#!/bin/sh
# An encoder of your own learns from a larger one, on your photographs, without labels:
#   examples/own_encoder.sh PHOTOGRAPHS CHECKPOINT ARCHITECTURE SIDE TEACHER
# CHECKPOINT is a file of weights, ARCHITECTURE its name in timm, TEACHER a name of timm or a model folder.
set -e
cd "$(dirname "$0")/.."
polygrain new mine --images "$1" --encoder "$2" --architecture "$3" --side "$4" --mean .5 --std .5 --teacher "$5"
polygrain run --profile mine
polygrain export profiles/mine/data/choice -o exported
