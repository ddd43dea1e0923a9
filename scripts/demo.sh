#!/bin/sh
# The demo: a whole fleet on this machine, twenty documents through it, and what came out. The fleet is left running.
set -eu
BIN="$1"
STATE_DIR="${TOKENMILL_STATE_DIR:-.tokenmill}"
RESULTS="$STATE_DIR/demo/results-$(date +%Y%m%d-%H%M%S).jsonl"

echo "==> Starting the fleet: PostgreSQL, Valkey, API, workers, maintenance, Flower"
"$BIN/tokenmill" up --detach
mkdir -p "$STATE_DIR/demo"

echo "==> Running twenty documents through it"
"$BIN/tokenmill" run examples/documents \
    --instruction "Summarise this document in one sentence, in its own language." \
    --max-tokens 48 --run-name "$(basename "$RESULTS")" --output "$RESULTS"

"$BIN/python" scripts/show_results.py "$RESULTS"
echo "==> The fleet keeps running. Its parts and addresses:"
"$BIN/tokenmill" status
echo "Stop it with: $BIN/tokenmill down"
