#!/bin/sh
# build.sh [SOURCE [OUTPUT]] builds the guest, as submit does by itself.
set -eu
command -v wat2wasm >/dev/null || { echo "missing: wat2wasm (Debian: apt install wabt)" >&2; exit 3; }
exec wat2wasm --debug-names -o "${2:-guest.wasm}" "${1:-guest.wat}"
