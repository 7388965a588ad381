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

// A world is the cluster that all tests share.
type world struct {
	provider
	client kubernetes.Interface
	// image is Sluice's, by name, if the nodes have it.
	image string
	// fresh are the files of the nodes before anything was installed, and chains their
	// configurations by the nodes' names.
	fresh  files
	chains map[string][]byte

	// plainCrowd is how long pods take that start at once without the plugin; 0 if that is not
	// known.
	plainCrowd time.Duration

	mu        sync.Mutex
	installed bool // the chart is
	ambient   bool // with ambient mode
	collected int  // how often the state was saved below logs
	logs      string
}

// maxCollected is for how many failures the cluster's state is saved: each takes seconds, and the
// first tell most.
const maxCollected = 3

// newWorld starts a cluster whose nodes have Sluice's image.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := startWorld(t, sluiceArchive)
	var err error
	if w.image, err = image.Name(sluiceArchive); err != nil {
		t.Fatal(err)
	}
	return w
}

// startWorld starts a cluster whose nodes have the images that are packed here and those of
// archives. It is stopped when the test ends, whatever ends it.
func startWorld(t *testing.T, archives ...string) *world {
	t.Helper()
	netnstest.RequireRoot(t)
	if os.Getenv(providerVariable) == "" {
		t.Skipf("%s is not set: \"make e2e\" runs this on a cluster of its own", providerVariable)
	}
	for _, archive := range archives {
		if _, err := os.Stat(archive); err != nil {
			t.Fatalf("%v\n\"make e2e\" builds it", err)
		}
	}
	packed, err := packImages()
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	p, err := startProvider(t.Context(), t.Output(), append(packed, archives...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := &world{
		provider: p,
		logs:     filepath.Join(bin, "e2e", "logs", time.Now().Format("2006-01-02T15-04-05")),
	}
	if w.client, err = kubernetes.NewForConfig(p.REST()); err != nil {
		t.Fatal(err)
	}
	w.fresh, w.chains = w.nodeFiles(t), map[string][]byte{}
	for _, n := range w.Nodes() {
		w.chains[n.Name()] = conflist(t, n)
	}
	if !onVM() {
		w.copyOracles(t)
	}
	t.Logf("the cluster runs after %s", time.Since(begin).Round(time.Millisecond))
	return w
}

// node is the node with the control plane, on which pods run unless a test puts them on another.
func (w *world) node() cluster.Node { return w.Nodes()[0] }

// chain is the configuration of that node before anything was installed.
func (w *world) chain() []byte { return w.chains[w.node().Name()] }

// onNode runs a command on that node, and returns what it prints.
func (w *world) onNode(ctx context.Context, argv ...string) (string, error) {
	var stderr strings.Builder
	c := w.node().Command(ctx, argv...)
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, stderr.String())
	}
	return string(out), nil
}

// saveOnFailure saves the state of the cluster when the test has failed.
func (w *world) saveOnFailure(t *testing.T) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.collected++; w.collected > maxCollected {
			return
		}
		dir := filepath.Join(w.logs, fmt.Sprint(w.collected))
		if err := os.MkdirAll(w.logs, 0o755); err != nil {
			t.Log(err)
		}
		if err := w.Collect(dir); err != nil {
			t.Log(err)
		}
		if absolute, err := filepath.Abs(dir); err == nil {
			t.Logf("the state of the cluster after this failure: %s", absolute)
		}
	})
}

// eventually waits until a condition holds, which it asks for every tenth of a second, and fails
// the test after the time given with the last reason why it did not. It returns how long it took.
func eventually(
	t *testing.T, within time.Duration, what string, condition func(ctx context.Context) error,
) time.Duration {
	t.Helper()
	// In a cleanup the test's context is done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), within)
	defer cancel()
	begin := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := condition(ctx)
		if err == nil {
			return time.Since(begin)
		}
		// What ended together with the time says nothing about the reason.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %v", what, within, last)
		case <-tick.C:
		}
	}
}
