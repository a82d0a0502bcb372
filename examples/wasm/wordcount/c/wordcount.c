// Counts the words of values, split at ASCII white space. Reduce it with sum.
#include "pmr.h"

PMR_FUNCTION(map, r) {
	pmr_bytes word, text = r.value;
	while (pmr_word(&text, &word))
		pmr_sum(word, 1);
}
