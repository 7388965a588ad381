// Package options has the settings of the plugin's log: the [Level], and the file and its rotation
// ([Log]). It is separate from package log: programs that read a configuration but write no log
// link neither that package nor zap.
package options
