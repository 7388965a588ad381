package validation

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func TestValidationLeaksNothing(t *testing.T) {
	pair := netnstest.NewPair(t)
	o := Options{Redirect: typical(rules.ModeTProxy)}
	mustApply(t, pair, rules.MustCompile(o.Redirect))
	validate(t, pair, o) // starts threads and the poller of the runtime
	files, goroutines, dumpable := openFiles(t), runtime.NumGoroutine(), dumpableFlag(t)
	for range 20 {
		// On a busy machine the neighbor may not reach the pod in time. Then some checks are not
		// done, but none fails.
		if r := validate(t, pair, o); r.Outcome() == Fails {
			t.Fatalf("want no failed check: %s", describe(r))
		}
	}
	// A goroutine may end shortly after its socket is closed.
	rulestest.Eventually(t, fmt.Sprintf("%d files and %d goroutines", files, goroutines),
		func() bool { return runtime.NumGoroutine() <= goroutines && openFiles(t) <= files })
	original, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	// A thread with other ids may end shortly after its work.
	rulestest.EventuallySucceeds(t, "all threads have their original ids and namespace", func() error {
		if changed := changedThreads(t, original); len(changed) > 0 {
			return fmt.Errorf("changed threads: %q; the original namespace is %s", changed,
				original)
		}
		return nil
	})
	if got := dumpableFlag(t); got != dumpable {
		t.Errorf("the dumpable flag is %d, want %d as before", got, dumpable)
	}
}

// changedThreads describes the threads in another network namespace than the original one, and the
// threads with other ids than root's.
func changedThreads(t *testing.T, original string) (changed []string) {
	t.Helper()
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		ns, err := os.Readlink(thread + "/ns/net")
		if err == nil && ns != original {
			changed = append(changed, thread+" is in "+ns)
		}
		status, _ := os.ReadFile(thread + "/status")
		for line := range strings.SplitSeq(string(status), "\n") {
			if id, ok := strings.CutPrefix(line, "Uid:"); ok &&
				strings.Join(strings.Fields(id), " ") != "0 0 0 0" {
				changed = append(changed, thread+" has ids "+id)
			}
		}
	}
	return changed
}

// dumpableFlag returns the flag of PR_GET_DUMPABLE. It may be 0 after this process started a
// process of another user, because the two processes share their memory until the new one executes
// its program.
func dumpableFlag(t *testing.T) int {
	t.Helper()
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return dumpable
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}
