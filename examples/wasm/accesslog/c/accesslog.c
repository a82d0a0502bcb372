// Reads lines of a web server's access log, in the common or combined format of Apache and nginx:
//
//	192.0.2.7 - - [01/Jun/2024:00:00:04 +0000] "GET /a HTTP/1.1" 200 5120 "-" "curl/8.5.0"
//
// map counts requests per status, hits counts them per host, bytes adds up what was sent per host. Reduce each with
// sum. Lines that are no such thing are counted as "bad lines".
#include "pmr.h"

typedef struct {
	pmr_bytes host, status;
	int64_t bytes;
} request;

// skip_quoted cuts a text in quotes off rest; \" is a part of it.
static bool skip_quoted(pmr_bytes *rest) {
	if (rest->len == 0 || rest->ptr[0] != '"') return false;
	for (uint32_t i = 1; i < rest->len; i++) {
		if (rest->ptr[i] == '\\') {
			i++;
		} else if (rest->ptr[i] == '"') {
			pmr_take(rest, i + 1);
			return true;
		}
	}
	return false;
}

static bool parse(pmr_bytes line, request *q) {
	pmr_bytes rest = line, size;
	if (!pmr_field(&rest, ' ', &q->host) || q->host.len == 0) return false;
	pmr_take(&rest, pmr_find(rest, '"'));
	if (!skip_quoted(&rest) || !pmr_word(&rest, &q->status) || !pmr_word(&rest, &size)) return false;
	int64_t status;
	if (q->status.len != 3 || !pmr_parse_i64(q->status, &status)) return false;
	if (pmr_equal(size, pmr_text("-"))) { // nothing was sent
		q->bytes = 0;
		return true;
	}
	return pmr_parse_i64(size, &q->bytes);
}

PMR_FUNCTION(map, r) {
	request q;
	if (parse(r.value, &q))
		pmr_sum(q.status, 1);
	else
		pmr_count("bad lines", 1);
}

PMR_FUNCTION(hits, r) {
	request q;
	if (parse(r.value, &q)) pmr_sum(q.host, 1);
}

PMR_FUNCTION(bytes, r) {
	request q;
	if (parse(r.value, &q)) pmr_sum(q.host, q.bytes);
}
