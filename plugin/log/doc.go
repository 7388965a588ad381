// Package log opens the plugin's log: lines of JSON, written to standard error, to a file that is
// rotated, and to other writers, such as the client of the node agent.
//
//	logger, closeLog := log.Open(options.Log{Level: options.Info, File: path}, os.Stderr)
//	defer closeLog()
//
// The plugin runs for milliseconds beside other instances of itself. All of them append to the same
// file, and the first instance that finds the file too big rotates it. Errors of the log never fail
// the plugin: a line that cannot be written to the file is lost there, and standard error says so.
package log
