#!/bin/sh
# crowd.sh TOOL FOLDER PROGRAM -- five engines (watch_engine.c) beside slow clients and hostile sockets: crowd.py, in a folder of its own.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 "$2/crowd.py" "$1" "$3" "$folder"
