#!/bin/sh
# foreign.sh TOOL FOLDER -- text that others chose, as the command prints it: foreign.py, in a folder of its own.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 "$2/foreign.py" "$1" "$folder"
