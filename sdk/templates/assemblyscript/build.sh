#!/bin/sh
# build.sh [SOURCE [OUTPUT]] builds the guest. It uses the asc of this folder, if npm ci was run here, or that of the PATH.
set -eu
PATH="$PWD/node_modules/.bin:$PATH"
command -v asc >/dev/null || { echo "missing: asc, the AssemblyScript compiler (npm ci, or npm install -g assemblyscript)" >&2; exit 3; }
exec asc "${1:-guest.ts}" -o "${2:-guest.wasm}" -O3 --enable simd
