// Command software builds the software of a node before the tests, so that an unprivileged user can
// build it and root can run the tests. With E2E_PROVIDER=kind or vm, it also builds the software of
// a kind cluster or of a virtual machine. Without root, it does not build the file systems of
// nodes.
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
		withNodeRoot := os.Geteuid() == 0 && os.Getenv("E2E_NODE_IMAGE") == cluster.BuildNodeImage
		_, err = build.ForKind(ctx, os.Stderr, !docker.Runs(ctx), withNodeRoot)
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
