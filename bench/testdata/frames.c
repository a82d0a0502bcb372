// What bench compares with the same work outside of a guest: walk only goes from frame to frame, split finds the
// words of the values. As a guest both are functions of a job that emits one number per bucket. As a native
// program it does the same with batches in a file (u32 size, frames) and prints the nanoseconds that the best of
// some rounds took:
//
//	frames walk|split FILE ROUNDS
#include <stdint.h>

enum { INPUT = 8 << 20, SLACK = 8 };

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

static int space(uint8_t c) { return c == ' ' || (uint8_t)(c - '\t') < 5; }

// spaces and word are pmr.h's: see there.
static inline uint64_t spaces(uint64_t x) {
	const uint64_t every = 0x0101010101010101ull, high = 0x80 * every, low = x & ~high;
	uint64_t blank = ~((low ^ ' ' * every) + 0x7f * every);
	uint64_t control = (low + (0x80 - '\t') * every) & ~(low + (0x80 - '\r' - 1) * every);
	return (blank | control) & ~x & high;
}

static const uint8_t *word_end(const uint8_t *at, const uint8_t *stop) {
	for (uint64_t x; at < stop; at += 8) { // behind the input is slack
		__builtin_memcpy(&x, at, 8);
		if ((x = spaces(x))) {
			at += __builtin_ctzll(x) >> 3;
			break;
		}
	}
	return at < stop ? at : stop;
}

static uint32_t split_frames(const uint8_t *p, uint32_t size) {
	uint64_t words = 0;
	for (const uint8_t *end = p + size; p < end;) {
		const uint8_t *at = p + 12 + load(p + 4), *stop = at + load(p + 8);
		p = stop;
		for (;;) {
			while (at < stop && space(*at))
				at++;
			if (at == stop)
				break;
			const uint8_t *word = at;
			at = word_end(at, stop);
			words += 1 + ((uint64_t)(at - word) << 32);
		}
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
