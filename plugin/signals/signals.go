// Package signals names the signals that end a command in order.
package signals

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// End returns the signals that end a command like Ctrl-C. The hang-up of the terminal is one of
// them, unless the command was started with nohup.
func End() []os.Signal {
	signals := []os.Signal{unix.SIGINT, unix.SIGTERM}
	if !signal.Ignored(unix.SIGHUP) {
		signals = append(signals, unix.SIGHUP)
	}
	return signals
}
