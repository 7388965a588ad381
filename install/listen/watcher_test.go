package listen

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestRemovalEndsTheWait checks that wait returns after the socket or its directory is removed,
// before the next interval.
func TestRemovalEndsTheWait(t *testing.T) {
	for name, remove := range map[string]func(path string) error{
		"the socket":    os.Remove,
		"its directory": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			socket := filepath.Join(dir, "agent.sock")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(socket, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			w := newSocketWatcher(socket)
			defer w.close()
			w.interval = time.Hour
			w.renew()
			if w.unwatched {
				t.Fatal("changes are not reported")
			}
			if err := remove(socket); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if !w.wait(ctx, true) {
				t.Error("wait did not return within a minute after the removal")
			}
		})
	}
}
