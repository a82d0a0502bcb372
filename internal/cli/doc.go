// Package cli is what the programs engine and submit have in common: exit codes, usage errors with
// "did you mean", and the flags that say which cluster to use.
//
//	var c cli.Connection
//	c.Register(root.PersistentFlags())
//	cli.Group(root, runCommand, statusCommand)
//	os.Exit(cli.Execute(ctx, root, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
//
// In a command, c.Settle reads environment and file; then c.Value("server") is what holds.
package cli
