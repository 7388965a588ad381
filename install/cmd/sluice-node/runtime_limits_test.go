package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// TestLimitRuntime checks that the program's limits apply, that lower limits of the environment,
// such as the chart's resource limits, remain, and that GOGC takes precedence over gcPercent.
func TestLimitRuntime(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(64))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(256 << 20))
	limitRuntime()
	if got := debug.SetMemoryLimit(-1); got != 256<<20/100*90 {
		t.Errorf("with a limit of 256 MiB: %d bytes, want 90 %%", got)
	}
	for _, row := range []struct {
		name                     string
		given                    int
		gogc                     string
		wantProcessors, wantGOGC int
	}{
		{"a big node", 64, "", 2, 50},
		{"a limit of one processor", 1, "", 1, 50},
		// The Go runtime has read GOGC before the test, so the value stays 100.
		{"a user who has set GOGC", 64, "200", 2, 100},
	} {
		runtime.GOMAXPROCS(row.given)
		debug.SetGCPercent(100)
		t.Setenv("GOGC", row.gogc)
		limitRuntime()
		if got := runtime.GOMAXPROCS(0); got != row.wantProcessors {
			t.Errorf("%s: %d processors, want %d", row.name, got, row.wantProcessors)
		}
		if got := debug.SetGCPercent(100); got != row.wantGOGC {
			t.Errorf("%s: GOGC is %d, want %d", row.name, got, row.wantGOGC)
		}
	}
}
