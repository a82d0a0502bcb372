// Package devengine runs `engine dev` as a child process, for programs that show or measure a whole cluster:
//
//	cmd := exec.Command("bin/engine", "dev", "--dir", dir, "--listen", "127.0.0.1:0")
//	e, err := devengine.Start(ctx, cmd, filepath.Join(dir, "engine.log"))
//	...
//	defer e.Stop()
//	client, err := pinion.Connect(ctx, pinion.Config{Server: e.Server})
package devengine
