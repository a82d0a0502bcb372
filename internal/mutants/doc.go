// Mutants switches off one mechanism of the protocol after the other, and checks that a test notices:
//
//	go run ./internal/mutants            # all of them, as make mutants does
//	go run ./internal/mutants -only fence -show
//
// A mutant is a small change of the source as text, which go test gets by its -overlay flag; no file of the
// tree is written. Its tests must fail with it, and must pass without it. A mutant that survives is a mechanism
// that no test needs: then a test is missing, or the mechanism is. A text that is not there any more is an
// error, so that the table is kept in step with the code.
package main
