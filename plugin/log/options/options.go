// Package options says what the plugin logs, and where to. It is apart from the log itself, and from the library that writes it, for the
// sake of those who read a configuration and log nothing.
package options

import (
	"fmt"
	"strings"
)

// Log says what is logged, and where to. The zero value logs to standard error only, from [Info] on.
type Log struct {
	// Level is the least level that is logged; [None] logs nothing.
	Level Level
	// File is the path of the log file, which is made with mode 0600 if there is none; empty for no file.
	File string
	// MaxMegabytes is the size at which the file is rotated, 0 for never; Backups is how many rotated files are kept, and MaxDays how
	// long, 0 for all and for ever.
	MaxMegabytes, Backups, MaxDays int
}

// A Level says how important a line is. The numbers are those of zap (go.uber.org/zap/zapcore).
type Level int8

// The levels.
const (
	Debug Level = -1
	Info  Level = 0
	Warn  Level = 1
	Error Level = 2
	Fatal Level = 5
	None  Level = Fatal + 1 // above all
)

// LevelWant is what [ParseLevel] reads.
const LevelWant = "debug, info, warn, error, fatal or none"

// ParseLevel reads a level, in capital or small letters. Istio's words are among them.
func ParseLevel(text string) (Level, error) {
	switch strings.ToLower(text) {
	case "debug":
		return Debug, nil
	case "info":
		return Info, nil
	case "warn":
		return Warn, nil
	case "error":
		return Error, nil
	case "fatal":
		return Fatal, nil
	case "none":
		return None, nil
	}
	return 0, fmt.Errorf("%q is not a level: want %s", text, LevelWant)
}
