// Finds the k records with the largest numbers. A record is a name, a space or tab, and an integer:
//
//	Amazon 6400
//
// Parameter k: how many, 1 to 1000, 10 if it is not given. Use it with combine combine and reduce module. All names are
// gathered under one key, top, the largest first; of equal numbers the lesser name first. Each bucket emits its own k,
// combine makes k of those, and reduce makes the k of all: they are the same function.
#include "pmr.h"

enum { MAX_K = 1000, MAX_NAME = 116 };

typedef struct {
	int64_t number;
	uint32_t len;
	char name[MAX_NAME];
} entry;

static entry top[MAX_K]; // in order
static uint32_t k, filled;

void pmr_begin(void) {
	int64_t n = 10;
	pmr_bytes given = pmr_param("k");
	if (given.ptr && (!pmr_parse_i64(given, &n) || n < 1 || n > MAX_K))
		pmr_fail("the parameter k must be a number from 1 to 1000; it is", given);
	k = (uint32_t)n;
	filled = 0;
}

static pmr_bytes name_of(const entry *e) {
	pmr_bytes name = {e->name, e->len};
	return name;
}

static bool before(int64_t number, pmr_bytes name, const entry *e) {
	return number != e->number ? number > e->number : pmr_compare(name, name_of(e)) < 0;
}

static void insert(int64_t number, pmr_bytes name) {
	if (filled == k && !before(number, name, &top[k - 1])) return;
	uint32_t at = filled < k ? filled++ : k - 1;
	for (; at > 0 && before(number, name, &top[at - 1]); at--) top[at] = top[at - 1];
	top[at].number = number;
	top[at].len = name.len;
	for (uint32_t i = 0; i < name.len; i++) top[at].name[i] = name.ptr[i];
}

static void take(pmr_bytes record) {
	int64_t number;
	uint32_t end = record.len; // of the name and the blank behind it
	while (end > 0 && !pmr_space(record.ptr[end - 1])) end--;
	pmr_bytes digits = {record.ptr + end, record.len - end}, name = {record.ptr, end ? end - 1 : 0};
	if (end == 0 || !pmr_parse_i64(digits, &number))
		pmr_fail("a record must be a name, a space and an integer; this one is", record);
	if (name.len > MAX_NAME) pmr_fail("a name has more than 116 bytes", name);
	insert(number, name);
}

// put_number writes a number in decimal and returns the place after it.
static char *put_number(char *p, int64_t number) {
	char digits[20];
	uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
	int n = 0;
	do digits[n++] = (char)('0' + left % 10);
	while ((left /= 10) > 0);
	if (number < 0) *p++ = '-';
	while (n > 0) *p++ = digits[--n];
	return p;
}

static void emit_all(pmr_bytes key) {
	for (uint32_t i = 0; i < filled; i++) {
		char text[MAX_NAME + 22], *p = text;
		for (uint32_t j = 0; j < top[i].len; j++) *p++ = top[i].name[j];
		*p++ = ' ';
		p = put_number(p, top[i].number);
		pmr_bytes value = {text, (uint32_t)(p - text)};
		pmr_emit(key, value);
	}
	filled = 0;
}

PMR_FUNCTION(map, r) { take(r.value); }

void pmr_finish(void) { emit_all(pmr_text("top")); } // of a map: after reduce nothing is left

static void merge(pmr_record r) {
	if (pmr_first(r)) filled = 0;
	take(r.value);
	if (pmr_last(r)) emit_all(r.key);
}

PMR_FUNCTION(combine, r) { merge(r); }

PMR_FUNCTION(reduce, r) { merge(r); }
