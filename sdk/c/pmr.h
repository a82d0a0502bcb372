// pmr.h is all that a Pinion guest in C or C++ needs. It asks for no libc. A guest that counts words:
//
//	#include "pmr.h"
//
//	PMR_FUNCTION(map, r) {                     // runs for each record r
//		pmr_bytes word, text = r.value;
//		while (pmr_word(&text, &word))
//			pmr_emit_i64(word, 1);
//	}
//
//	clang --target=wasm32 -nostdlib -O2 -mbulk-memory -msimd128 -Wl,--no-entry -o words.wasm words.c
//
// A job names one function of a module, map unless it says otherwise; any number of PMR_FUNCTIONs may be in
// one file. Those that combine or reduce get the pairs of one key after another (pmr_first, pmr_last) and may
// emit only that key. Nothing may be carried from one bucket to the next: if you keep something in static
// variables, write void pmr_begin(void), which runs before each bucket and sets them back, and
// void pmr_finish(void), which runs after its last record and may emit.
#ifndef PMR_H
#define PMR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __wasm_simd128__
#include <wasm_simd128.h>
#endif

#ifdef __cplusplus
#define PMR_C extern "C"
#else
#define PMR_C
#endif
#define PMR_EXPORT(name) PMR_C __attribute__((export_name(name)))
#define PMR_IMPORT(name) PMR_C __attribute__((import_module("pmr1"), import_name(name)))

// pmr_bytes is a part of the memory: len bytes at ptr, with no zero after them.
typedef struct pmr_bytes {
	const char *ptr;
	uint32_t len;
} pmr_bytes;

// pmr_record is a record of the bucket or, in combine and reduce, a pair of a key. Its bytes are valid until
// the function that got it returns.
typedef struct pmr_record {
	uint32_t flags;
	pmr_bytes key, value;
} pmr_record;

enum { PMR_FIRST = 1, PMR_LAST = 2, PMR_I64 = 4, PMR_F64 = 8 };

// PMR_FUNCTION(map, r) { ... } exports the function map, whose body runs for each record r of a batch.
// Return ends the record, not the batch.
#define PMR_FUNCTION(name, r)                                              \
	static inline void pmr_each_##name(pmr_record r);                      \
	PMR_EXPORT(#name) int32_t pmr_batch_##name(const char *p, uint32_t n) { \
		for (const char *end = p + n; p < end;)                            \
			pmr_each_##name(pmr_cut(&p));                                  \
		return pmr_flush();                                                \
	}                                                                      \
	static inline void pmr_each_##name(pmr_record r)

// Hooks: define them if you need them.
PMR_C void pmr_begin(void) __attribute__((weak));  // before each bucket: set static variables back
PMR_C void pmr_finish(void) __attribute__((weak)); // after the last record of each bucket: emit what was gathered

// The host. Use the functions without "host" below.
PMR_IMPORT("emit") void pmr_host_emit(const void *block, uint32_t len);
PMR_IMPORT("emit_kv") void pmr_host_emit_kv(const char *key, uint32_t klen, const char *value, uint32_t vlen);
PMR_IMPORT("emit_i64") void pmr_host_emit_i64(const char *key, uint32_t klen, uint64_t bits);
PMR_IMPORT("emit_f64") void pmr_host_emit_f64(const char *key, uint32_t klen, double v);
PMR_IMPORT("log") void pmr_host_log(int32_t level, const char *text, uint32_t len);
PMR_IMPORT("count") void pmr_host_count(const char *name, uint32_t len, int64_t delta);
PMR_IMPORT("fail") void pmr_host_fail(const char *text, uint32_t len);

// ---- bytes

// pmr_text is the bytes of a C string, without its zero.
static inline pmr_bytes pmr_text(const char *s) {
	pmr_bytes b = {s, 0};
	while (s[b.len]) b.len++;
	return b;
}

static inline bool pmr_equal(pmr_bytes a, pmr_bytes b) {
	if (a.len != b.len) return false;
	for (uint32_t i = 0; i < a.len; i++)
		if (a.ptr[i] != b.ptr[i]) return false;
	return true;
}

// pmr_compare orders bytes as the engine orders keys: below 0, 0 or above 0.
static inline int pmr_compare(pmr_bytes a, pmr_bytes b) {
	for (uint32_t i = 0; i < a.len && i < b.len; i++)
		if (a.ptr[i] != b.ptr[i]) return (unsigned char)a.ptr[i] < (unsigned char)b.ptr[i] ? -1 : 1;
	return a.len < b.len ? -1 : a.len > b.len;
}

// pmr_take cuts the first n bytes off b and returns them; all of b if it has fewer.
static inline pmr_bytes pmr_take(pmr_bytes *b, uint32_t n) {
	pmr_bytes head = {b->ptr, n < b->len ? n : b->len};
	b->ptr += head.len;
	b->len -= head.len;
	return head;
}

// pmr_find is the place of the first c in b, or b.len.
static inline uint32_t pmr_find(pmr_bytes b, char c) {
	uint32_t i = 0;
	while (i < b.len && b.ptr[i] != c) i++;
	return i;
}

// pmr_field cuts the next field and the separator after it off rest: false when there is none left. An empty
// last field is not one: "a,b," has two.
static inline bool pmr_field(pmr_bytes *rest, char separator, pmr_bytes *field) {
	if (rest->len == 0) return false;
	*field = pmr_take(rest, pmr_find(*rest, separator));
	pmr_take(rest, 1);
	return true;
}

// pmr_parse_i64 reads a decimal number that is all of b: false if it is none, or leaves the range.
static inline bool pmr_parse_i64(pmr_bytes b, int64_t *number) {
	bool minus = b.len > 0 && b.ptr[0] == '-';
	uint64_t n = 0, limit = (uint64_t)INT64_MAX + minus;
	for (uint32_t i = minus; i < b.len; i++) {
		uint32_t digit = (uint32_t)(b.ptr[i] - '0');
		if (digit > 9 || n > (limit - digit) / 10) return false;
		n = 10 * n + digit;
	}
	*number = (int64_t)(minus ? 0 - n : n);
	return b.len > (uint32_t)minus;
}

// ---- records

static inline bool pmr_first(pmr_record r) { return r.flags & PMR_FIRST; } // of its key
static inline bool pmr_last(pmr_record r) { return r.flags & PMR_LAST; }   // of its key

// pmr_fail ends the job with a message, and what it is about if that is not empty. It does not return.
__attribute__((noreturn, noinline)) static void pmr_fail(const char *message, pmr_bytes about) {
	static char line[1024];
	pmr_bytes parts[] = {pmr_text(message), pmr_text(about.len ? ": " : ""), about};
	uint32_t n = 0;
	for (int i = 0; i < 3; i++)
		for (uint32_t j = 0; j < parts[i].len && n < sizeof line; j++) line[n++] = parts[i].ptr[j];
	pmr_host_fail(line, n);
	__builtin_trap(); // not reached: the host has ended the call
}

// pmr_i64 and pmr_f64 are the number that is the value of a pair, in combine and reduce.
static inline int64_t pmr_i64(pmr_record r) {
	int64_t v;
	if (!(r.flags & PMR_I64)) pmr_fail("pmr_i64: the value is no i64; the key is", r.key);
	__builtin_memcpy(&v, r.value.ptr, 8);
	return v;
}

static inline double pmr_f64(pmr_record r) {
	double v;
	if (!(r.flags & PMR_F64)) pmr_fail("pmr_f64: the value is no f64; the key is", r.key);
	__builtin_memcpy(&v, r.value.ptr, 8);
	return v;
}

// pmr_cut takes the first frame off a batch.
static inline pmr_record pmr_cut(const char **p) {
	uint32_t head[3]; // flags, klen, vlen
	__builtin_memcpy(head, *p, sizeof head);
	pmr_record r = {head[0], {*p + 12, head[1]}, {*p + 12 + head[1], head[2]}};
	*p = r.value.ptr + head[2];
	return r;
}

// ---- output, which is gathered and handed over in blocks of 64 KiB

enum { PMR_BLOCK = 65536, PMR_SLACK = 24 };
static char pmr_block[PMR_BLOCK + PMR_SLACK]; // short copies write up to PMR_SLACK bytes
static uint32_t pmr_used;
static uintptr_t pmr_readable; // up to here memory can be read, whatever it is: short copies read PMR_SLACK bytes

static inline bool pmr_near(const char *p) { return (uintptr_t)p + PMR_SLACK <= pmr_readable; }

// pmr_flush hands over what was emitted. PMR_FUNCTIONs do it at the end of each batch.
__attribute__((noinline)) static int32_t pmr_flush(void) {
	if (pmr_used > 0) pmr_host_emit(pmr_block, pmr_used);
	pmr_used = 0;
	return 0;
}

static inline void pmr_copy(char *to, pmr_bytes b) {
	if (b.len <= PMR_SLACK && pmr_near(b.ptr))
		__builtin_memcpy(to, b.ptr, PMR_SLACK);
	else
		__builtin_memcpy(to, b.ptr, b.len);
}

// pmr_frame puts a frame's header and key into the block and returns the place for its value. A frame that is
// larger than a block goes to the host by itself, after what was emitted before: NULL.
static inline char *pmr_frame(uint32_t flags, pmr_bytes key, uint32_t vlen) {
	uint64_t size = (uint64_t)12 + key.len + vlen;
	if (size > PMR_BLOCK - pmr_used) pmr_flush();
	if (size > PMR_BLOCK) return NULL;
	char *p = pmr_block + pmr_used;
	uint32_t head[3] = {flags, key.len, vlen};
	__builtin_memcpy(p, head, sizeof head);
	pmr_copy(p + 12, key);
	pmr_used += (uint32_t)size;
	return p + 12 + key.len;
}

// pmr_emit emits a pair with a raw value; key and value are copied. A key has at most 65,535 bytes.
static inline void pmr_emit(pmr_bytes key, pmr_bytes value) {
	char *p = pmr_frame(0, key, value.len);
	if (p)
		pmr_copy(p, value);
	else
		pmr_host_emit_kv(key.ptr, key.len, value.ptr, value.len);
}

// pmr_emit_i64 and pmr_emit_f64 emit a pair with a number.
static inline void pmr_emit_i64(pmr_bytes key, int64_t v) {
	char *p = pmr_frame(PMR_I64, key, 8);
	if (p)
		__builtin_memcpy(p, &v, 8);
	else
		pmr_host_emit_i64(key.ptr, key.len, (uint64_t)v);
}

static inline void pmr_emit_f64(pmr_bytes key, double v) {
	char *p = pmr_frame(PMR_F64, key, 8);
	if (p)
		__builtin_memcpy(p, &v, 8);
	else
		pmr_host_emit_f64(key.ptr, key.len, v);
}

// ---- sums: what has few keys is added up here before it is emitted

enum { PMR_SLOTS = 16384, PMR_SHORT = PMR_SLACK - 1 };
typedef struct pmr_slot {
	uint64_t key[3]; // padded with zeros; the last byte is its length + 1, or 0 if the slot is free
	int64_t sum;
} pmr_slot;
static pmr_slot pmr_slots[PMR_SLOTS];
static uint64_t pmr_taken[PMR_SLOTS / 64]; // a bit for each slot
static void (*pmr_drain)(void); // set by the first pmr_sum, so that guests without one have no table

// The PMR_SLACK bytes from n before the middle keep the first n bytes of others.
static const unsigned char pmr_kept[2 * PMR_SLACK] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
	255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};

static inline void pmr_evict(pmr_slot *s) {
	pmr_bytes key = {(const char *)s->key, (uint32_t)(s->key[2] >> 56) - 1};
	if (s->key[2] != 0) pmr_emit_i64(key, s->sum);
	s->key[2] = 0;
}

static void pmr_drain_slots(void) {
	for (int i = 0; i < PMR_SLOTS / 64; i++)
		for (; pmr_taken[i] != 0; pmr_taken[i] &= pmr_taken[i] - 1)
			pmr_evict(&pmr_slots[64 * i + __builtin_ctzll(pmr_taken[i])]);
}

// pmr_sum is pmr_emit_i64 for jobs that sum: it adds up the numbers of a key and emits the sum when another
// key needs its place, and at the end of the bucket. Not for combine and reduce. Keys of more than 23 bytes
// are emitted as they come.
static inline void pmr_sum(pmr_bytes key, int64_t v) {
	uint64_t k[3] = {0, 0, 0}, kept;
	if (key.len > PMR_SHORT) {
		pmr_emit_i64(key, v);
		return;
	}
	if (pmr_near(key.ptr)) {
		for (int i = 2; i >= 0; i--) { // the farthest first: where it can be read, what is before it needs no check
			__builtin_memcpy(&kept, pmr_kept + PMR_SLACK - key.len + 8 * i, 8);
			__builtin_memcpy(&k[i], key.ptr + 8 * i, 8);
			k[i] &= kept;
		}
	} else {
		__builtin_memcpy(k, key.ptr, key.len);
	}
	k[2] |= (uint64_t)(key.len + 1) << 56;
	uint64_t hash = k[0] ^ (k[1] * 0x9e3779b97f4a7c15ull) ^ (k[2] * 0xc2b2ae3d27d4eb4full);
	hash = (hash ^ hash >> 32) * 0xff51afd7ed558ccdull;
	uint32_t at = (uint32_t)(hash >> 50); // of 2^14
	pmr_slot *s = &pmr_slots[at];
	int64_t old = s->sum, sum;
	if (((s->key[2] ^ k[2]) | (s->key[1] ^ k[1]) | (s->key[0] ^ k[0])) == 0 && !__builtin_add_overflow(old, v, &sum)) {
		s->sum = sum;
		return;
	}
	pmr_drain = pmr_drain_slots;
	pmr_evict(s);
	s->sum = v, s->key[2] = k[2], s->key[1] = k[1], s->key[0] = k[0];
	pmr_taken[at / 64] |= 1ull << at % 64;
}

// ---- words

static inline bool pmr_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// pmr_spaces has a bit for each of the 16 bytes at p: 1 if it is white space, 32 or 9 to 13.
#ifdef __wasm_simd128__
static inline uint32_t pmr_spaces(const char *p) {
	v128_t x = wasm_v128_load(p), blank = wasm_i8x16_eq(x, wasm_i8x16_const_splat(' '));
	// 9 to 13 are those that leave nothing: an unsigned comparison would be more instructions.
	v128_t left = wasm_u8x16_sub_sat(wasm_i8x16_sub(x, wasm_i8x16_const_splat('\t')), wasm_i8x16_const_splat('\r' - '\t'));
	return wasm_i8x16_bitmask(wasm_v128_or(blank, wasm_i8x16_eq(left, wasm_i8x16_const_splat(0))));
}
#else
static inline uint32_t pmr_spaces(const char *p) {
	const uint64_t every = 0x0101010101010101ull, high = 0x80 * every;
	uint64_t x[2];
	uint32_t bits = 0;
	__builtin_memcpy(x, p, sizeof x);
	for (int i = 0; i < 2; i++) {
		// First in the high bit of each byte: no sum carries from one byte into the next.
		uint64_t low = x[i] & ~high;
		uint64_t blank = ~((low ^ ' ' * every) + 0x7f * every);
		uint64_t control = (low + (0x80 - '\t') * every) & ~(low + (0x80 - '\r' - 1) * every);
		uint64_t found = (blank | control) & ~x[i] & high;
		bits |= (uint32_t)((found >> 7) * 0x0102040810204080ull >> 56) << 8 * i;
	}
	return bits;
}
#endif

// pmr_rest is the length of a word from p on.
__attribute__((noinline)) static uint32_t pmr_rest(const char *p, uint32_t left) {
	uint32_t n = 0, m;
	for (; left - n >= 16; n += 16)
		if ((m = pmr_spaces(p + n)) != 0) return n + (uint32_t)__builtin_ctz(m);
	while (n < left && !pmr_space(p[n])) n++;
	return n;
}

// pmr_word cuts the next word off text: bytes between ASCII white space (space, \t \n \v \f \r). False when
// there is none left.
static inline bool pmr_word(pmr_bytes *text, pmr_bytes *word) {
	const char *p = text->ptr;
	uint32_t left = text->len, len = 0;
	while (len == 0) {
		if (!pmr_near(p)) {
			while (left > 0 && pmr_space(*p)) p++, left--;
			len = pmr_rest(p, left);
			break;
		}
		// A bit for each white space, and for the end of the text if that is as near.
		uint32_t stops = pmr_spaces(p) | (left < 16 ? 1u << left : 0);
		uint32_t skip = (uint32_t)__builtin_ctz(~stops);
		if (skip >= left) {
			left = 0;
			break;
		}
		p += skip;
		left -= skip;
		if (stops >> skip != 0)
			len = (uint32_t)__builtin_ctz(stops >> skip);
		else if (skip < 16)
			len = pmr_rest(p, left);
	}
	word->ptr = p;
	word->len = len;
	text->ptr = p + len;
	text->len = left - len;
	return len > 0;
}

// pmr_words goes through all words of a text, as pmr_word does, and faster:
//
//	pmr_bytes word;
//	pmr_words words = pmr_words_of(text);
//	while (pmr_next(&words, &word))
//		pmr_emit_i64(word, 1);
typedef struct pmr_words {
	const char *at, *next, *end; // the 64 bytes that edges is about, what comes after them, the text's end
	uint64_t edges;              // a bit where a word begins or ends, for whole words only
} pmr_words;

static inline pmr_words pmr_words_of(pmr_bytes text) {
	pmr_words w = {text.ptr, text.ptr, text.ptr + text.len, 0};
	return w;
}

// pmr_blanks has a bit for each of 64 bytes: 1 if it is white space or not of the text.
static inline uint64_t pmr_blanks(const char *p, uint32_t left) {
	uint64_t blank = left < 64 ? ~0ull << left : 0;
	if ((uintptr_t)p + 64 <= pmr_readable) // the farthest first here too
		return blank | (uint64_t)pmr_spaces(p + 48) << 48 | (uint64_t)pmr_spaces(p + 32) << 32 |
			(uint64_t)pmr_spaces(p + 16) << 16 | pmr_spaces(p);
	for (uint32_t i = 0; i < left && i < 64; i++) blank |= (uint64_t)pmr_space(p[i]) << i;
	return blank;
}

// pmr_next gives the next word: false when there is none left.
static inline bool pmr_next(pmr_words *w, pmr_bytes *word) {
	while (w->edges == 0) {
		const char *p = w->next;
		if (p >= w->end) return false;
		uint32_t left = (uint32_t)(w->end - p);
		uint64_t blank = pmr_blanks(p, left), edges = blank ^ (blank << 1 | 1);
		w->at = p;
		w->next = left > 64 ? p + 64 : w->end;
		if (blank >> 63 == 0) { // the last word goes on: the next time begins with it
			int last = 63 - __builtin_clzll(edges);
			if (last == 0) {
				word->ptr = p;
				word->len = pmr_rest(p, left);
				w->next = p + word->len;
				return true;
			}
			edges ^= 1ull << last;
			w->next = p + last;
		}
		w->edges = edges;
	}
	uint32_t from = (uint32_t)__builtin_ctzll(w->edges);
	w->edges &= w->edges - 1;
	word->ptr = w->at + from;
	word->len = (uint32_t)__builtin_ctzll(w->edges) - from;
	w->edges &= w->edges - 1;
	return true;
}

// ---- the job

#ifndef PMR_PARAMS
#define PMR_PARAMS 4096 // bytes of the job's parameters; define it before the include to have more
#endif
static char pmr_params[PMR_PARAMS];
static uint32_t pmr_params_len;

// pmr_param is a parameter of the job; its ptr is NULL if it was not given.
static inline pmr_bytes pmr_param(const char *name) {
	for (const char *p = pmr_params; p < pmr_params + pmr_params_len;) {
		pmr_record r = pmr_cut(&p);
		if (pmr_equal(r.key, pmr_text(name))) return r.value;
	}
	pmr_bytes none = {NULL, 0};
	return none;
}

// pmr_log writes a line to the job's log. pmr_count adds to a counter of the job.
static inline void pmr_log(pmr_bytes text) { pmr_host_log(1, text.ptr, text.len); }
static inline void pmr_count(const char *name, int64_t delta) { pmr_host_count(name, pmr_text(name).len, delta); }

// ---- what the host calls

static char *pmr_buffer; // at the end of the memory, or other memory was taken behind it
static uintptr_t pmr_buffer_end;

PMR_EXPORT("pmr_alloc") char *pmr_alloc(uint32_t len) {
	const uint64_t page = 65536;
	uint64_t end = (uint64_t)__builtin_wasm_memory_size(0) * page;
	if (!pmr_buffer || pmr_buffer_end != end) pmr_buffer = (char *)(uintptr_t)end;
	uint64_t need = (uint64_t)(uintptr_t)pmr_buffer + len;
	if (need > end) {
		if (__builtin_wasm_memory_grow(0, (need - end + page - 1) / page) == (size_t)-1) return NULL;
		end += (need - end + page - 1) / page * page;
	}
	pmr_buffer_end = pmr_readable = (uintptr_t)end;
	return pmr_buffer;
}

PMR_EXPORT("pmr_init") int32_t pmr_init(const char *params, uint32_t len) {
	if (len > PMR_PARAMS) pmr_fail("pmr.h: the job's parameters do not fit: define a larger PMR_PARAMS", pmr_text(""));
	__builtin_memcpy(pmr_params, params, len);
	pmr_params_len = len;
	if (pmr_begin) pmr_begin();
	return 0;
}

PMR_EXPORT("pmr_end") int32_t pmr_end(void) {
	if (pmr_finish) pmr_finish();
	if (pmr_drain) pmr_drain();
	return pmr_flush();
}

#endif
