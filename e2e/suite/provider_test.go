package suite_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sluice-mesh/sluice/e2e/cluster"
)

// A provider is a cluster whose nodes the tests may disrupt. Its methods are documented at
// [cluster.Cluster].
type provider interface {
	Kubeconfig() string
	REST() *rest.Config
	Nodes() []cluster.Node
	LoadImage(ctx context.Context, archive string) error
	Collect(dir string) error
	Stop() error
}

var _ provider = (*cluster.Cluster)(nil)

// providerVariable is the environment variable that selects the provider. If it is not set, tests
// are skipped.
const providerVariable = "E2E_PROVIDER"

// onVM reports whether the node is a virtual machine.
func onVM() bool { return os.Getenv(providerVariable) == "vm" }

// onKind reports whether the nodes are containers of kind.
func onKind() bool { return os.Getenv(providerVariable) == "kind" }

// timeFactor multiplies time limits, because an emulated processor is slow.
var timeFactor = func() time.Duration {
	if onVM() {
		return 5
	}
	return 1
}()

// startProvider starts the cluster that the environment selects, with images from archives.
func startProvider(ctx context.Context, log io.Writer, images []string) (provider, error) {
	switch name := os.Getenv(providerVariable); name {
	case "local":
		return cluster.Start(ctx, cluster.Options{
			DualStack: true, DNS: true, CNIVersion: "1.1.0", Images: images, Log: log,
		})
	case "kind":
		return cluster.StartKind(ctx, cluster.Options{
			DualStack: true, DNS: true, CNIVersion: "1.1.0", NodeImage: os.Getenv("E2E_NODE_IMAGE"),
			Images: images, Log: log,
		})
	case "vm":
		return cluster.StartVM(ctx, cluster.Options{
			Runtime: os.Getenv("RUNTIME"), Images: images, Log: log,
		})
	default:
		return nil, fmt.Errorf("%s=%q: want local, kind or vm", providerVariable, name)
	}
}
