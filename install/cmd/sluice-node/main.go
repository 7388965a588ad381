// Command sluice-node is the node agent: it installs the CNI plugin, keeps it in the CNI chain and
// serves the node's pods to it; see package agent. Its settings are environment variables; see
// package settings.
//
//	sluice-node run                  manage this node until SIGTERM
//	sluice-node uninstall            uninstall the plugin from this node; its agent must have ended
//	sluice-node uninstall --cluster  delete the DaemonSet, and wait until all agents have ended
//
// While the agent runs, PUT /log-level on the health port sets the log level:
//
//	kubectl port-forward ds/sluice-node 8000 & curl -X PUT -d debug localhost:8000/log-level
//
// If a container runtime executes sluice-node as a CNI plugin, sluice-node is a no-op plugin. The
// agent copies sluice-node to the path of the removed plugin while the runtime's cached results of
// sandboxes name the removed plugin.
package main

import (
	"cmp"
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker (-X main.version=...).
var version string

func main() {
	if os.Getenv("CNI_COMMAND") != "" {
		os.Exit(noop())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	// A second signal ends the program immediately.
	context.AfterFunc(ctx, stop)
	if err := command().ExecuteContext(ctx); err != nil {
		report(err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use: "sluice-node", Short: "Keep the plugin sluice-cni in this node's CNI chain",
		Version: programVersion(), SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(
		&cobra.Command{
			Use: "run", Args: cobra.NoArgs,
			Short: "Install the plugin on this node and keep it installed until SIGTERM; " +
				"settings are environment variables",
			RunE: func(c *cobra.Command, _ []string) error { return run(c.Context()) },
		},
		uninstallCommand(),
	)
	return root
}

func uninstallCommand() *cobra.Command {
	var everywhere bool
	c := &cobra.Command{
		Use: "uninstall",
		Short: "Uninstall the plugin from this node, whose agent must not be running, " +
			"or from all nodes",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if everywhere {
				return uninstallEverywhere(c.Context())
			}
			return uninstall(c.Context())
		},
	}
	c.Flags().BoolVar(&everywhere, "cluster", false,
		"delete the DaemonSet, and wait until each agent has uninstalled the plugin")
	return c
}

func programVersion() string { return cmp.Or(version, "(devel)") }
