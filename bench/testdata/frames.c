// What bench compares with the same work outside of a guest: walk only goes from frame to frame, split finds the
// words of the values. As a guest both are functions of a job that emits one number per bucket. As a native
// program it does the same with batches in a file (u32 size, frames) and prints the nanoseconds that the best of
// some rounds took:
//
//	frames walk|split FILE ROUNDS
#include <stdint.h>
#if defined(__wasm_simd128__)
#include <wasm_simd128.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { INPUT = 8 << 20, SLACK = 64 };

static uint8_t input[INPUT + SLACK];
static uint64_t total;

static uint32_t load(const uint8_t *p) {
	uint32_t v;
	__builtin_memcpy(&v, p, 4);
	return v;
}

static uint32_t walk_frames(const uint8_t *p, uint32_t size) {
	uint64_t sum = 0;
	for (const uint8_t *end = p + size; p < end;) {
		uint32_t klen = load(p + 4), vlen = load(p + 8);
		sum += vlen;
		p += 12 + klen + vlen;
	}
	total += sum;
	return 0;
}

// blanks has a bit for each of the 16 bytes at p that is white space: 32, or 9 to 13, of which 4 leaves nothing after
// 9 was taken off. A guest and an amd64 do it by the same six instructions. Other machines do it by eight bytes at a
// time, which flatters the guest: no goal is judged there without saying so.
#if defined(__wasm_simd128__)
static inline uint64_t blanks(const uint8_t *p) {
	v128_t x = wasm_v128_load(p), blank = wasm_i8x16_eq(x, wasm_i8x16_const_splat(' '));
	v128_t left = wasm_u8x16_sub_sat(wasm_i8x16_sub(x, wasm_i8x16_const_splat('\t')), wasm_i8x16_const_splat(4));
	return wasm_i8x16_bitmask(wasm_v128_or(blank, wasm_i8x16_eq(left, wasm_i8x16_const_splat(0))));
}
#elif defined(__SSE2__)
static inline uint64_t blanks(const uint8_t *p) {
	__m128i x = _mm_loadu_si128((const __m128i *)p), blank = _mm_cmpeq_epi8(x, _mm_set1_epi8(' '));
	__m128i left = _mm_subs_epu8(_mm_sub_epi8(x, _mm_set1_epi8('\t')), _mm_set1_epi8(4));
	return (uint32_t)_mm_movemask_epi8(_mm_or_si128(blank, _mm_cmpeq_epi8(left, _mm_setzero_si128())));
}
#else
// eight does it for eight bytes. No sum carries from one byte into the next; the product gathers their high bits.
static inline uint64_t eight(const uint8_t *p) {
	const uint64_t every = 0x0101010101010101ull, high = 0x80 * every;
	uint64_t x;
	__builtin_memcpy(&x, p, 8);
	uint64_t low = x & ~high, blank = ~((low ^ ' ' * every) + 0x7f * every);
	uint64_t control = (low + (0x80 - '\t') * every) & ~(low + (0x80 - '\r' - 1) * every);
	return (((blank | control) & ~x & high) >> 7) * 0x0102040810204080ull >> 56;
}

static inline uint64_t blanks(const uint8_t *p) { return eight(p) | eight(p + 8) << 8; }
#endif

// blanks64 is the same for 64 bytes. The farthest come first: where they can be read, the others can.
static inline uint64_t blanks64(const uint8_t *p) {
	uint64_t d = blanks(p + 48), c = blanks(p + 32), b = blanks(p + 16), a = blanks(p);
	return a | b << 16 | c << 32 | d << 48;
}

static uint64_t one_word(const uint8_t *from, const uint8_t *to) { return 1 + ((uint64_t)(to - from) << 32); }

// split_text goes from edge to edge of words, as bits: no branch depends on how long a word is.
static inline uint64_t split_text(const uint8_t *at, const uint8_t *stop) {
	uint64_t words = 0, outside = 1; // of a word, before at
	const uint8_t *word = at;        // where the open one began
	for (; at < stop; at += 64) {
		uint64_t blank = blanks64(at);
		if (stop - at < 64)
			blank |= ~0ull << (stop - at);
		uint64_t edges = blank ^ (blank << 1 | outside);
		if (!edges)
			continue;
		if (!outside) {
			words += one_word(word, at + __builtin_ctzll(edges));
			edges &= edges - 1;
		}
		outside = blank >> 63;
		if (!outside) {
			int last = 63 - __builtin_clzll(edges);
			word = at + last;
			edges ^= 1ull << last;
		}
		while (edges) {
			const uint8_t *from = at + __builtin_ctzll(edges);
			edges &= edges - 1;
			words += one_word(from, at + __builtin_ctzll(edges));
			edges &= edges - 1;
		}
	}
	return outside ? words : words + one_word(word, stop);
}

static uint32_t split_frames(const uint8_t *p, uint32_t size) {
	uint64_t words = 0;
	for (const uint8_t *end = p + size; p < end;) {
		const uint8_t *text = p + 12 + load(p + 4), *stop = text + load(p + 8);
		words += split_text(text, stop);
		p = stop;
	}
	total += words;
	return 0;
}

#ifdef __wasm__
#define EXPORT(name) __attribute__((export_name(name)))
__attribute__((import_module("pmr1"), import_name("emit_i64"))) void emit_i64(const char *key, uint32_t klen, uint64_t v);

EXPORT("pmr_alloc") uint8_t *buffer(uint32_t size) { return size <= INPUT ? input : 0; }
EXPORT("walk") uint32_t walk(const uint8_t *p, uint32_t size) { return walk_frames(p, size); }
EXPORT("split") uint32_t split(const uint8_t *p, uint32_t size) { return split_frames(p, size); }
EXPORT("pmr_end") uint32_t end(void) {
	emit_i64("total", 5, total);
	total = 0;
	return 0;
}
#else
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv) {
	if (argc != 4)
		return 2;
	FILE *f = fopen(argv[2], "rb");
	if (!f)
		return 1;
	fseek(f, 0, SEEK_END);
	long n = ftell(f);
	rewind(f);
	uint8_t *all = malloc((size_t)n);
	if (!all || fread(all, 1, (size_t)n, f) != (size_t)n)
		return 1;
	uint64_t best = UINT64_MAX, first = 0;
	for (int round = atoi(argv[3]); round > 0; round--) {
		uint64_t began = now();
		total = 0;
		for (long at = 0; at < n;) {
			uint32_t size = load(all + at);
			memcpy(input, all + at + 4, size); // a guest gets a copy too
			(argv[1][0] == 'w' ? walk_frames : split_frames)(input, size);
			at += 4 + (long)size;
		}
		uint64_t took = now() - began;
		best = took < best ? took : best;
		first = total;
	}
	printf("%llu %llu\n", (unsigned long long)best, (unsigned long long)first);
	return 0;
}
#endif
