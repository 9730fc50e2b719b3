#!/bin/sh
# Shows the curves of the newest five runs called NAME in one TensorBoard, until Ctrl-C.
name=$1 port=${2:-6006}
list='import json, sys; print(*(run["run_id"] for run in json.load(sys.stdin)))'
runs=$(headway runs --name "$name" --limit 5 --members --json | python3 -c "$list")
exec headway tensorboard --port "$port" $runs
