// Counts the words of each record. pmr.h says what else there is.
#include "pmr.h"

PMR_FUNCTION(map, r) {
	pmr_bytes word, text = r.value;
	while (pmr_word(&text, &word))
		pmr_emit_i64(word, 1);
}
