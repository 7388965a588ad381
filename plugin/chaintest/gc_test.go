package chaintest_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestGCRemovesStaleRecords checks that GC removes the records of all attachments that are not
// valid, even if libcni has no cached result of the attachment.
func TestGCRemovesStaleRecords(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	c := chain{version: latest}
	stays, deleted, forgotten, skipped := n.newPod(t, "sidecar"), n.newPod(t, "sidecar"),
		n.newPod(t, "sidecar"), n.newPod(t, "not-injected")
	for _, p := range []*pod{stays, deleted, forgotten, skipped} {
		p.mustAdd(t, c)
	}
	cached, err := filepath.Glob(filepath.Join(n.state, "cache", "results", "*"+forgotten.id+"*"))
	if err != nil || len(cached) != 1 {
		t.Fatalf("libcni's cached results of the pod: %q, error %v, want one", cached, err)
	}
	if err := os.Remove(cached[0]); err != nil {
		t.Fatal(err)
	}
	if err := n.gc(t, c, stays, skipped); err != nil {
		t.Errorf("GC: %v", err)
	}
	n.checkRecords(t, stays, skipped)
	stays.checkDrift(t, c, "")
	skipped.checkDrift(t, c, "")
	if err := n.gc(t, c); err != nil {
		t.Errorf("GC without pods: %v", err)
	}
	n.checkRecords(t)
}
