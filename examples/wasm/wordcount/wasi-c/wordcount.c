// Counts words as a plain program: records come as lines on stdin, and each word goes to stdout with a tab and 1.
// It knows nothing of Pinion; printf 'a b a\n' | wasmtime wordcount.wasm works as well. Reduce it with sum.
#include <stdio.h>

static int is_space(int c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

int main(void) {
	int c, in_word = 0;
	while ((c = getchar()) != EOF) {
		if (!is_space(c)) {
			putchar(c);
			in_word = 1;
		} else if (in_word) {
			fputs("\t1\n", stdout);
			in_word = 0;
		}
	}
	if (in_word) fputs("\t1\n", stdout);
	if (ferror(stdin) || fflush(stdout) != 0) {
		perror("wordcount");
		return 1;
	}
	return 0;
}
