// Uses each part of pmr.h; sdk_test.go knows what has to come out. The same functions are in ../rust/sdk.rs.
#include "pmr.h"

static int64_t records, total;

void pmr_begin(void) {
	records = 0;
	if (pmr_equal(pmr_param("begin"), pmr_text("fail"))) pmr_fail("begin was told to fail", pmr_text(""));
}

void pmr_finish(void) {
	if (records > 0) pmr_emit_i64(pmr_text("records"), records);
}

// map emits its record in all forms.
PMR_FUNCTION(map, r) {
	records++;
	pmr_emit(r.key, r.value);
	pmr_emit_i64(r.value, -(int64_t)r.value.len);
	pmr_emit_f64(r.value, 0.5);
	pmr_log(r.value);
	pmr_count("map", 2);
}

// params emits the parameter a, and whether b was given.
PMR_FUNCTION(params, r) {
	pmr_emit(r.key, pmr_param("a"));
	pmr_emit(r.key, pmr_text(pmr_param("b").ptr ? "given" : "missing"));
}

// sums adds up the words.
PMR_FUNCTION(sums, r) {
	pmr_bytes word, text = r.value;
	while (pmr_word(&text, &word)) pmr_sum(word, INT64_C(1) << 62);
}

// words emits the words.
PMR_FUNCTION(words, r) {
	pmr_bytes word, text = r.value;
	while (pmr_word(&text, &word)) pmr_emit(r.key, word);
}

// each emits the words of the key and of the value.
PMR_FUNCTION(each, r) {
	pmr_bytes word;
	pmr_words words = pmr_words_of(r.key);
	while (pmr_next(&words, &word)) pmr_emit(pmr_text("key"), word);
	words = pmr_words_of(r.value);
	while (pmr_next(&words, &word)) pmr_emit(pmr_text("value"), word);
}

PMR_FUNCTION(failing, r) { pmr_fail("cannot take it", r.value); }

// reduce adds up the i64s of a key, and says how much lies between first and last.
PMR_FUNCTION(reduce, r) {
	if (pmr_first(r)) total = 0;
	total += pmr_i64(r);
	if (pmr_last(r)) pmr_emit_i64(r.key, total);
}

PMR_FUNCTION(floats, r) {
	if (pmr_first(r)) pmr_emit_f64(r.key, 2 * pmr_f64(r));
}

// numbers emits the i64 that each field is, or the field.
PMR_FUNCTION(numbers, r) {
	pmr_bytes field, rest = r.value;
	int64_t n;
	while (pmr_field(&rest, ',', &field)) {
		if (pmr_parse_i64(field, &n))
			pmr_emit_i64(field, n);
		else
			pmr_emit(field, pmr_text("none"));
	}
}

// order emits the order of key and value.
PMR_FUNCTION(order, r) { pmr_emit_i64(r.key, pmr_compare(r.key, r.value)); }
