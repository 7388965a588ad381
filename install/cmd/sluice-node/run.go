package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent"
	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/agent/logs"
	"github.com/sluice-mesh/sluice/install/agent/retire"
	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/install/token"
)

// Files that the kubelet projects into the pod.
const (
	tokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	caFile    = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
)

// apiServer returns the address of the API server and the credentials.
func apiServer() (apiclient.Options, error) {
	server, err := token.ServerURL(os.Getenv)
	if err != nil {
		return apiclient.Options{}, fmt.Errorf("determine the address of the API server: %w", err)
	}
	return apiclient.Options{
		Server: server, TokenFile: tokenFile, CAFile: caFile,
		UserAgent: "sluice-node/" + programVersion(),
	}, nil
}

// run runs the agent until ctx is done.
func run(ctx context.Context) error {
	limitRuntime()
	v, log, err := readSettings(os.LookupEnv)
	if err != nil {
		return err
	}
	api, err := apiServer()
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	log.RedirectGlobalLoggers()
	a, err := agent.New(agent.Options{
		Settings: v, Version: programVersion(), API: api, Noop: executable, Log: log,
	})
	if err != nil {
		return err
	}
	log.Info("the agent is starting", zap.String("version", programVersion()),
		zap.String("node", v.Text("NODE_NAME")))
	if err := a.Run(ctx); err != nil {
		log.Error("the agent failed", zap.Error(err))
		return errLogged
	}
	return nil
}

// readSettings reads the settings from an environment, and returns them and the log that they
// specify.
func readSettings(lookup func(string) (string, bool)) (settings.Values, *logs.Log, error) {
	v, err := settings.Read(lookup)
	if err != nil {
		return nil, nil, err
	}
	log, err := logs.New(v.Text("SLUICE_LOG_LEVEL"), v.Bool("SLUICE_LOG_JSON"), os.Stderr)
	return v, log, err
}

// errLogged is the error of a command that has already logged the reason.
var errLogged = errors.New("see the log")

// report writes the reason why the program fails, in JSON if the log format is JSON. It reads no
// other setting, because an invalid setting may be the reason.
func report(err error) {
	if errors.Is(err, errLogged) {
		return
	}
	if inJSON, _ := strconv.ParseBool(os.Getenv("SLUICE_LOG_JSON")); inJSON {
		if log, logErr := logs.New("info", true, os.Stderr); logErr == nil {
			log.Error("sluice-node failed", zap.Error(err))
			return
		}
	}
	fmt.Fprintln(os.Stderr, "sluice-node:", err)
}

// uninstall uninstalls the plugin from this node.
func uninstall(ctx context.Context) error {
	v, log, err := readSettings(lookupLenient)
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	return agent.Uninstall(ctx, v, executable, log.Logger)
}

// lookupLenient looks up an environment variable. For a missing setting that only a running agent
// needs, it returns a placeholder.
func lookupLenient(name string) (string, bool) {
	if value := os.Getenv(name); value != "" {
		return value, true
	}
	if s, known := settings.Find(name); known && s.Required {
		return "unknown", true
	}
	return "", false
}

// uninstallEverywhere deletes the DaemonSet and waits until all agents have ended. It runs in the
// pod of the uninstall job, whose only settings are POD_NAMESPACE, SLUICE_DAEMONSET and the
// settings of the log.
func uninstallEverywhere(ctx context.Context) error {
	namespace := os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		return errors.New(
			"environment variable POD_NAMESPACE: not set; want the namespace of the agent")
	}
	v, log, err := readSettings(lookupLenient)
	if err != nil {
		return err
	}
	options, err := apiServer()
	if err != nil {
		return err
	}
	api, err := apiclient.New(options)
	if err != nil {
		return err
	}
	client := cluster.New(api)
	defer client.Close()
	name := cluster.Name{Namespace: namespace, Name: v.Text("SLUICE_DAEMONSET")}
	if err := retire.Everywhere(ctx, client, name, func(text string) {
		log.Info(text)
	}); err != nil {
		return err
	}
	log.Info("all agents have ended; nodes without a working agent may still have the plugin",
		zap.Stringer("daemonset", name))
	return nil
}
