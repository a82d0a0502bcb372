#!/bin/sh
# build.sh [SOURCE [OUTPUT]] builds the guest. It needs a rustc that has the target's library.
set -eu
target=wasm32-unknown-unknown
for rustc in "${RUSTC:-rustc}" /usr/bin/rustc; do
	libraries="$("$rustc" --print target-libdir --target $target 2>/dev/null)" && [ -d "$libraries" ] || continue
	exec "$rustc" --target $target --edition 2021 --crate-type cdylib -O -C panic=abort -C strip=debuginfo \
		${RUSTFLAGS-} -o "${2:-guest.wasm}" "${1:-guest.rs}"
done
echo "missing: rustc with the target $target (rustup target add $target; Debian: apt install rustc lld libstd-rust-dev-wasm32)" >&2
exit 3
