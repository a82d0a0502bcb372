// Counts the words of values, split at ASCII white space. Reduce it with sum.
#include "pmr.h"

PMR_FUNCTION(map, r) {
	pmr_bytes word;
	pmr_words words = pmr_words_of(r.value);
	while (pmr_next(&words, &word))
		pmr_sum(word, 1);
}
