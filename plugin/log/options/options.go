// Package options has the settings of the plugin's log: the [Level], and the file and its rotation
// ([Log]). It is separate from package log: programs that read a configuration but write no log
// link neither that package nor zap.
package options

import (
	"fmt"
	"slices"
	"strings"
)

// Log contains the settings of the log. The zero value logs lines of level [Info] and above,
// without a file.
type Log struct {
	// Level is the lowest level that is logged. [None] logs nothing.
	Level Level
	// File is the path of the log file, or empty for none. It is created with mode 0600.
	File string
	// MaxMegabytes is the size in MiB at which the file is rotated, or 0 for never. Backups is the
	// number of rotated files that are kept, or 0 for all. MaxDays is the number of days for which
	// rotated files are kept, or 0 for no limit.
	MaxMegabytes, Backups, MaxDays int
}

// A Level is the severity of a line, with the numbers of zap (go.uber.org/zap/zapcore).
type Level int8

// The levels.
const (
	Debug Level = -1
	Info  Level = 0
	Warn  Level = 1
	Error Level = 2
	Fatal Level = 5
	None  Level = Fatal + 1 // above the level of every line
)

// LevelNames returns the names of the levels that [ParseLevel] accepts, the most verbose first.
func LevelNames() []string { return []string{"debug", "info", "warn", "error", "fatal", "none"} }

// LevelWant lists the names of the levels, for the texts of errors.
const LevelWant = "debug, info, warn, error, fatal or none"

// ParseLevel parses the name of a level, in upper or lower case. It accepts Istio's names.
func ParseLevel(text string) (Level, error) {
	i := slices.Index(LevelNames(), strings.ToLower(text))
	if i < 0 {
		return 0, fmt.Errorf("%q is not a level: want %s", text, LevelWant)
	}
	return []Level{Debug, Info, Warn, Error, Fatal, None}[i], nil
}
