package suite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/sluice-mesh/sluice/e2e/cluster"
	"github.com/sluice-mesh/sluice/e2e/image"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// A testCluster is the cluster that the tests share.
type testCluster struct {
	provider
	client kubernetes.Interface
	// image is the name of Sluice's image, if it is loaded on the nodes.
	image string
	// initialFiles are the files in the nodes' CNI directories before the installation. chains
	// contains the CNI configuration of each node before the installation, by node name.
	initialFiles files
	chains       map[string][]byte

	// plainBurst is the duration of a burst of pods without the plugin; 0 if it was not measured.
	plainBurst time.Duration

	mu        sync.Mutex
	installed bool // whether the chart is installed
	ambient   bool // whether ambient mode is enabled
	failures  int  // number of failed tests so far

	logs string // directory for the states that saveOnFailure saves
}

// maxCollected limits how often saveOnFailure saves the cluster's state. Saving takes seconds.
const maxCollected = 3

// newTestCluster starts a cluster with Sluice's image.
func newTestCluster(t *testing.T) *testCluster {
	t.Helper()
	tc := startTestCluster(t, sluiceArchive)
	var err error
	if tc.image, err = image.Name(sluiceArchive); err != nil {
		t.Fatal(err)
	}
	return tc
}

// startTestCluster starts a cluster with the images of packImages and of archives. The cluster is
// stopped when the test ends.
func startTestCluster(t *testing.T, archives ...string) *testCluster {
	t.Helper()
	netnstest.RequireRoot(t)
	if os.Getenv(providerVariable) == "" {
		t.Skipf("%s is not set: run \"make e2e\"", providerVariable)
	}
	for _, archive := range archives {
		if _, err := os.Stat(archive); err != nil {
			t.Fatalf("%v\nrun \"make e2e\"", err)
		}
	}
	images, err := packImages()
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	p, err := startProvider(t.Context(), t.Output(), append(images, archives...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	tc := &testCluster{
		provider: p,
		logs:     filepath.Join(bin, "e2e", "logs", time.Now().Format("2006-01-02T15-04-05")),
	}
	if tc.client, err = kubernetes.NewForConfig(p.REST()); err != nil {
		t.Fatal(err)
	}
	tc.initialFiles, tc.chains = tc.nodeFiles(t), map[string][]byte{}
	for _, n := range tc.Nodes() {
		tc.chains[n.Name()] = conflist(t, n)
	}
	if !onVM() {
		tc.copyPrograms(t)
	}
	t.Logf("cluster started in %s", time.Since(begin).Round(time.Millisecond))
	return tc
}

// node returns the first node, which is the default node of pods.
func (tc *testCluster) node() cluster.Node { return tc.Nodes()[0] }

// chain returns the CNI configuration of the default node before the installation.
func (tc *testCluster) chain() []byte { return tc.chains[tc.node().Name()] }

// onNode runs a command on the default node, and returns its output.
func (tc *testCluster) onNode(ctx context.Context, argv ...string) (string, error) {
	var stderr strings.Builder
	c := tc.node().Command(ctx, argv...)
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, stderr.String())
	}
	return string(out), nil
}

// saveOnFailure saves the state of the cluster at the end of the test if the test has failed. The
// state is saved for the first maxCollected failed tests.
func (tc *testCluster) saveOnFailure(t *testing.T) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		tc.mu.Lock()
		defer tc.mu.Unlock()
		if tc.failures++; tc.failures > maxCollected {
			return
		}
		dir := filepath.Join(tc.logs, fmt.Sprint(tc.failures))
		if err := os.MkdirAll(tc.logs, 0o755); err != nil {
			t.Log(err)
		}
		if err := tc.Collect(dir); err != nil {
			t.Log(err)
		}
		if absolute, err := filepath.Abs(dir); err == nil {
			t.Logf("state of the cluster: %s", absolute)
		}
	})
}

// loggedWait is the time from which eventually logs how long it waited.
const loggedWait = 5 * time.Second

// eventually polls condition until it returns nil, and returns the elapsed time. After the time
// limit, it fails the test with the last error of condition.
func eventually(
	t *testing.T, within time.Duration, description string, condition func(ctx context.Context) error,
) time.Duration {
	t.Helper()
	// In a cleanup function, the test's context is done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), within)
	defer cancel()
	begin := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := condition(ctx)
		if err == nil {
			elapsed := time.Since(begin)
			if elapsed >= loggedWait {
				t.Logf("waited %s: %s", elapsed.Round(time.Second), description)
			}
			return elapsed
		}
		// After the end of ctx, the error only says that ctx has ended.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: timeout after %s: %v", description, within, last)
		case <-tick.C:
		}
	}
}
