// Package options has the settings of the plugin's log: the [Level], and the file and its rotation
// ([Log]). It is separate from package log, and from the library that package uses, for programs
// that read a configuration and write no log.
package options
