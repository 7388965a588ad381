package cluster_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/sluice-mesh/sluice/e2e/cluster"
)

// A testCluster is a cluster with a client, for tests.
type testCluster struct {
	*cluster.Cluster
	clients kubernetes.Interface
}

// startCluster starts a cluster with start, which is cluster.Start or cluster.StartKind, and stops
// it when the test ends.
func startCluster(
	t *testing.T, start func(
		context.Context, cluster.Options,
	) (*cluster.Cluster, error), o cluster.Options,
) *testCluster {
	t.Helper()
	o.Log = t.Output()
	c, err := start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	clients, err := kubernetes.NewForConfig(c.REST())
	if err != nil {
		t.Fatal(err)
	}
	return &testCluster{c, clients}
}

// mustReach waits until a GET of the URL from the pod returns the greeting of a test server.
func (s *testCluster) mustReach(t *testing.T, pod, url string) {
	t.Helper()
	eventually(t, pod+" reaches "+url, func(ctx context.Context) error {
		got, err := s.exec(ctx, pod, "get", url)
		if err == nil && !strings.HasPrefix(got, "hello ") {
			err = errors.New(got)
		}
		return err
	})
}

// mustCollect calls Collect. The keys of texts are glob patterns: the first file that matches must
// contain the value.
func (s *testCluster) mustCollect(t *testing.T, texts map[string]string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "saved")
	if err := s.Collect(dir); err != nil {
		t.Error(err)
	}
	for pattern, want := range texts {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) == 0 {
			t.Errorf("files that match %s: none, error %v; want at least one", pattern, err)
			continue
		}
		if content, err := os.ReadFile(files[0]); err != nil ||
			!strings.Contains(string(content), want) {
			t.Errorf("%s: want %q in the file, error %v", files[0], want, err)
		}
	}
}

// mustLeaveNothing fails the test unless the cluster can be stopped twice, parent is empty
// afterwards, and the state of this machine is the same as before; see [footprint].
func (s *testCluster) mustLeaveNothing(t *testing.T, parent string, before map[string]string) {
	t.Helper()
	if err := errors.Join(s.Stop(), s.Stop()); err != nil {
		t.Error(err)
	}
	if remaining, err := os.ReadDir(parent); err != nil || len(remaining) > 0 {
		t.Errorf("files after Stop: %v, error %v; want none", remaining, err)
	}
	mustEqualFootprint(t, before)
}

// waitTime is the time limit of eventually. It is long enough for a busy machine.
const waitTime = 4 * time.Minute

// eventually waits until check returns nil. After waitTime it fails the test with the last error of
// check.
func eventually(t *testing.T, description string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTime)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		// After the end of ctx, the error only says that ctx has ended.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("timeout after %s while waiting until %s: %v", waitTime, description, last)
		case <-tick.C:
		}
	}
}
