package hostrules_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/hostrules"
)

// TestLockWaitsForAnotherProgram checks that Lock acquires the lock of the iptables programs, and
// waits while another program has it.
func TestLockWaitsForAnotherProgram(t *testing.T) {
	proc := t.TempDir()
	run := filepath.Join(proc, "1", "root", "run")
	if err := os.MkdirAll(run, 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := os.OpenFile(filepath.Join(run, "xtables.lock"), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	flock := func(how int) {
		t.Helper()
		if err := unix.Flock(int(program.Fd()), how); err != nil {
			t.Fatal(err)
		}
	}
	node := &hostrules.Node{ProcDir: proc}
	synctest.Test(t, func(t *testing.T) {
		flock(unix.LOCK_EX)
		if _, err := node.Lock(); err == nil || !strings.Contains(err.Error(), "run/xtables.lock: another program") {
			t.Errorf("Lock while another program holds the lock: error %v, want the file and the reason", err)
		}
		time.AfterFunc(time.Second, func() { flock(unix.LOCK_UN) })
		unlock, err := node.Lock()
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(int(program.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			t.Error("flock of another program while Lock holds the lock: no error, want one")
		}
		unlock()
		flock(unix.LOCK_EX)
	})
	if _, err := (&hostrules.Node{ProcDir: t.TempDir()}).Lock(); err == nil {
		t.Error("Lock without the node's root directory: no error, want one")
	}
}
