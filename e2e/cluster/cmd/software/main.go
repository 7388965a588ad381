// Command software builds what a node needs, as the tests would, so that they find it: a user
// builds, and root runs the tests. With E2E_PROVIDER=kind in the environment it builds what a
// cluster of kind needs too; only root can make its nodes' file system.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/sluice-mesh/sluice/e2e/cluster"
	"github.com/sluice-mesh/sluice/e2e/cluster/build"
	"github.com/sluice-mesh/sluice/e2e/cluster/docker"
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
	if os.Getenv("E2E_PROVIDER") == "kind" {
		node := os.Geteuid() == 0 && os.Getenv("E2E_NODE_IMAGE") == cluster.BuildNodeImage
		_, err = build.ForKind(ctx, os.Stderr, !docker.Runs(ctx), node)
	} else {
		_, err = build.Build(ctx, os.Stderr)
	}
	return err
}
