#!/bin/sh
# build.sh [SOURCE [OUTPUT]] builds the guest.
set -eu
command -v wasm-ld >/dev/null || { echo "missing: clang and lld (Debian: apt install clang lld)" >&2; exit 3; }
exec "${CC:-clang}" --target=wasm32 -nostdlib -O2 -mbulk-memory -msimd128 -Wall -Wl,--no-entry ${CFLAGS-} \
	-o "${2:-guest.wasm}" "${1:-guest.c}"
