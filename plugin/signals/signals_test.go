package signals_test

import (
	"os"
	"os/signal"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/plugin/signals"
)

func TestHangUpEndsACommandUnlessItIsIgnored(t *testing.T) {
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, unix.SIGHUP)
	if got, want := signals.End(), []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP}; !slices.Equal(got, want) {
		t.Errorf("signals %v, want %v", got, want)
	}
	signal.Stop(handled)
	signal.Ignore(unix.SIGHUP) // as nohup
	defer signal.Reset(unix.SIGHUP)
	if got, want := signals.End(), []os.Signal{unix.SIGINT, unix.SIGTERM}; !slices.Equal(got, want) {
		t.Errorf("signals with nohup %v, want %v", got, want)
	}
}
