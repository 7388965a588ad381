// Command sluice-node is the node agent: it installs the CNI plugin, guards it and serves it, as
// package agent describes. Its settings are environment variables; the table is in package
// settings.
//
//	sluice-node run                  keep this node until SIGTERM
//	sluice-node uninstall            take the plugin off this node, on which no agent may run
//	sluice-node uninstall --cluster  delete the DaemonSet, and wait until each agent has taken the plugin off its node
//
// As long as it runs, PUT /log-level on the health port sets what it logs:
//
//	kubectl port-forward ds/sluice-node 8000 & curl -X PUT -d debug localhost:8000/log-level
//
// A runtime that executes it as a CNI plugin gets one that does nothing: a copy of it takes the
// place of plugins that are gone, and that sandboxes still name.
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
		os.Exit(nothing())
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
			Use: "run", Short: "Keep this node until SIGTERM; settings are environment variables",
			Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error { return run(c.Context()) },
		},
		uninstallCommand(),
	)
	return root
}

func uninstallCommand() *cobra.Command {
	var everywhere bool
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Take the plugin off this node, on which no agent may run; or off all nodes",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if everywhere {
				return uninstallEverywhere(c.Context())
			}
			return uninstall(c.Context())
		},
	}
	c.Flags().BoolVar(&everywhere, "cluster", false,
		"delete the DaemonSet, and wait until each agent has taken the plugin off its node")
	return c
}

func programVersion() string { return cmp.Or(version, "(devel)") }
