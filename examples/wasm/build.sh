#!/usr/bin/env bash
# build.sh DIR OUT.wasm builds one guest; its language is the name of its folder. build.sh --all BIN builds each one
# into BIN/EXAMPLE-LANGUAGE.wasm. The commands are those of the templates that users start from.
#
# Where a toolchain is missing it says so: with status 3 for one guest, and in a line for all, unless
# PINION_TOOLCHAINS=all makes that a failure.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
sdk="$here/../../sdk"

missing() {
	echo "missing: $1" >&2
	exit 3
}

need() { command -v "$1" >/dev/null || missing "$1 ($2)"; }

# rustc_for prints the first Rust compiler that has a target's library: a distribution's may be hidden by another one.
rustc_for() {
	local rustc
	for rustc in "${RUSTC:-rustc}" /usr/bin/rustc; do
		if [ -d "$("$rustc" --print target-libdir --target "$1" 2>/dev/null)" ]; then
			echo "$rustc"
			return
		fi
	done
	missing "rustc with the target $1 (rustup target add $1; Debian: apt install rustc lld libstd-rust-dev-wasm32)"
}

build() {
	local dir="$1" out="$2" rustc
	case "$(basename "$dir")" in
	c)
		CPATH="$sdk/c" "$sdk/templates/c/build.sh" "$dir"/*.c "$out"
		;;
	rust)
		"$sdk/templates/rust/build.sh" "$dir"/*.rs "$out"
		;;
	wat)
		"$sdk/templates/wat/build.sh" "$dir"/*.wat "$out"
		;;
	wasi-c)
		need clang "Debian: clang"
		need wasm-ld "Debian: lld"
		[ -e "$(clang --target=wasm32-wasi -print-file-name=libc.a)" ] || missing "libc for WASI (Debian: wasi-libc)"
		[ -e "$(clang --target=wasm32-wasi -print-libgcc-file-name)" ] ||
			missing "clang's runtime for WASI (Debian: libclang-rt-dev-wasm32)"
		clang --target=wasm32-wasi -O2 -Wall -Wl,--strip-debug -o "$out" "$dir"/*.c
		;;
	wasi-rust)
		rustc="$(rustc_for wasm32-wasi)"
		"$rustc" --target wasm32-wasi --edition 2021 -O -C panic=abort -C strip=debuginfo -o "$out" "$dir"/*.rs
		;;
	go)
		need go "https://go.dev/dl"
		(cd "$dir" && GOOS=wasip1 GOARCH=wasm GOFLAGS= go build -buildmode=c-shared -o "$out" .)
		;;
	assemblyscript)
		need node "Debian: nodejs"
		PATH="$here/../../.tools/assemblyscript/node_modules/.bin:$PATH" # where make toolchains puts asc
		"$sdk/templates/assemblyscript/build.sh" "$dir"/*.ts "$out"
		;;
	*)
		echo "build.sh: $dir is not named after a language" >&2
		exit 2
		;;
	esac
}

all() {
	local bin="$1" dir name status=0 failed=0
	mkdir -p "$bin"
	for dir in "$here"/*/*/; do
		dir="${dir%/}"
		[ "$(basename "$(dirname "$dir")")" != testdata ] || continue
		name="$(basename "$(dirname "$dir")")-$(basename "$dir")"
		status=0
		"${BASH_SOURCE[0]}" "$dir" "$bin/$name.wasm" || status=$?
		case $status in
		0) ;;
		3) if [ "${PINION_TOOLCHAINS:-}" = all ]; then failed=1; else echo "$name: skipped"; fi ;;
		*) echo "$name: failed" >&2; failed=1 ;;
		esac
	done
	return $failed
}

# OUT may be relative to where the user is.
absolute() { case "$1" in /*) echo "$1" ;; *) echo "$PWD/$1" ;; esac; }

[ $# -eq 2 ] || { echo "usage: build.sh DIR OUT.wasm | --all BIN" >&2; exit 2; }
if [ "$1" = --all ]; then
	all "$(absolute "$2")"
else
	build "${1%/}" "$(absolute "$2")"
fi
