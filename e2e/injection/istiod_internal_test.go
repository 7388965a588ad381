package injection

import (
	"errors"
	"os"
	"testing"

	vishnetns "github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-mesh/sluice/nft/netns"
)

func TestRunReturnsTheErrorOfAClosedNamespace(t *testing.T) {
	current, err := vishnetns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = current.Close() }()
	ns, err := netns.FromHandle(current)
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Close(); err != nil {
		t.Fatal(err)
	}
	i := &Istiod{ns: ns, exited: make(chan struct{})}
	err = i.run("true", corev1.Container{})
	_ = os.RemoveAll(i.dir)
	if !errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v, want %v", err, os.ErrClosed)
	}
	<-i.exited
}
