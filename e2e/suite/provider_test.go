package suite_test

import (
	"context"
	"fmt"
	"io"
	"os"

	"k8s.io/client-go/rest"

	"github.com/sluice-mesh/sluice/e2e/cluster"
)

// A provider is a cluster of its own for these tests, with nodes that may be broken. Its methods
// are those of [cluster.Cluster].
type provider interface {
	Kubeconfig() string
	REST() *rest.Config
	Nodes() []cluster.Node
	LoadImage(ctx context.Context, archive string) error
	Collect(dir string) error
	Stop() error
}

var _ provider = (*cluster.Cluster)(nil)

// providerVariable names the provider. Without it nothing is run: a cluster is more than who says
// "go test" expects.
const providerVariable = "E2E_PROVIDER"

// startProvider starts the cluster that the environment asks for, with images from archives.
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
	default:
		return nil, fmt.Errorf("%s=%q: want local or kind", providerVariable, name)
	}
}
