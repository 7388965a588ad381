// Command software builds what a node needs, as the tests would, so that they find it: a user
// builds, and root runs the tests. With E2E_PROVIDER=kind in the environment it builds what a
// cluster of kind needs too, and with E2E_PROVIDER=vm what a virtual machine needs; only root can
// make the file systems of their nodes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/sluice-mesh/sluice/e2e/cluster"
	"github.com/sluice-mesh/sluice/e2e/cluster/build"
	"github.com/sluice-mesh/sluice/e2e/cluster/docker"
	"github.com/sluice-mesh/sluice/e2e/kernels"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "software:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	switch os.Getenv("E2E_PROVIDER") {
	case "kind":
		node := os.Geteuid() == 0 && os.Getenv("E2E_NODE_IMAGE") == cluster.BuildNodeImage
		_, err = build.ForKind(ctx, os.Stderr, !docker.Runs(ctx), node)
	case "vm":
		if err := kernels.Install(ctx, "..", cluster.VMPrograms); err != nil {
			return err
		}
		if os.Geteuid() == 0 {
			_, err = build.ForVM(ctx, os.Stderr, os.Getenv("RUNTIME") == cluster.CRIO)
		} else {
			_, err = build.Build(ctx, os.Stderr)
		}
	default:
		_, err = build.Build(ctx, os.Stderr)
	}
	return err
}
