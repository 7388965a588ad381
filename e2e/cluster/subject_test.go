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

// A subject is a cluster in a test.
type subject struct {
	*cluster.Cluster
	clients kubernetes.Interface
}

// up starts a cluster, by cluster.Start or cluster.StartKind, which is stopped when the test ends.
func up(
	t *testing.T, start func(
		context.Context, cluster.Options,
	) (*cluster.Cluster, error), o cluster.Options,
) *subject {
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
	return &subject{c, clients}
}

// mustAnswer waits until a URL is answered to a pod.
func (s *subject) mustAnswer(t *testing.T, pod, url string) {
	t.Helper()
	eventually(t, pod+" reaches "+url, func(ctx context.Context) error {
		got, err := s.exec(ctx, pod, "get", url)
		if err == nil && !strings.HasPrefix(got, "hello ") {
			err = errors.New(got)
		}
		return err
	})
}

// mustHaveSaved fails the test unless what is known of the cluster can be saved, and has texts in
// files by their patterns.
func (s *subject) mustHaveSaved(t *testing.T, texts map[string]string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "saved")
	if err := s.Collect(dir); err != nil {
		t.Error(err)
	}
	for pattern, want := range texts {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: %v, %v", pattern, files, err)
			continue
		}
		if content, err := os.ReadFile(files[0]); err != nil ||
			!strings.Contains(string(content), want) {
			t.Errorf("%s does not have %q: %v", pattern, want, err)
		}
	}
}

// mustLeaveNothing fails the test unless the cluster can be stopped, twice, and nothing is left of
// it in its folder nor on this machine.
func (s *subject) mustLeaveNothing(t *testing.T, parent string, before map[string]string) {
	t.Helper()
	if err := errors.Join(s.Stop(), s.Stop()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
	same(t, before)
}

// eventually waits for a check to pass, for longer than that should take.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}
