package validation

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

func TestNothingIsLeftBehind(t *testing.T) {
	pair := netnstest.NewPair(t)
	o := Options{Redirect: usual(rules.ModeTProxy)}
	mustApply(t, pair, rules.Compile(o.Redirect))
	validate(t, pair, o) // starts what the runtime keeps
	files, goroutines := openFiles(t), runtime.NumGoroutine()
	for range 20 {
		if r := validate(t, pair, o); r.Outcome() != Works {
			t.Fatal(describe(r))
		}
	}
	// A goroutine whose socket was just closed may still be about to end.
	for start := time.Now(); runtime.NumGoroutine() > goroutines || openFiles(t) > files; runtime.Gosched() {
		if time.Since(start) > 10*time.Second {
			t.Fatalf("%d files and %d goroutines, before %d and %d", openFiles(t), runtime.NumGoroutine(), files, goroutines)
		}
	}
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		ns, err := os.Readlink(thread + "/ns/net")
		if err == nil && ns != home {
			t.Errorf("%s is in %s, home is %s", thread, ns, home)
		}
		status, _ := os.ReadFile(thread + "/status")
		for line := range strings.SplitSeq(string(status), "\n") {
			if id, ok := strings.CutPrefix(line, "Uid:"); ok && strings.Join(strings.Fields(id), " ") != "0 0 0 0" {
				t.Errorf("%s has ids %s", thread, id)
			}
		}
	}
	if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); dumpable != 1 || err != nil {
		t.Errorf("dumpable: %d, %v", dumpable, err)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}
