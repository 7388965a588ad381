// Package log opens the plugin's log: lines of JSON, written to standard error, to a file that is
// rotated, and to other writers, such as the client of the node agent.
//
//	core, closeLog := log.Open(options.Log{Level: options.Info, File: path}, os.Stderr)
//	defer closeLog()
//	logger := zap.New(core)
//
// The plugin runs for milliseconds beside other instances of itself. All of them append to the same
// file, and the first instance that finds the file too big rotates it. Errors of the log never fail
// the plugin: a line that cannot be written is lost, and the logger's error output says so.
package log
