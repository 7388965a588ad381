package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/sluice-mesh/sluice/e2e/cluster/build"
	"github.com/sluice-mesh/sluice/e2e/cluster/docker"
)

// BuildNodeImage is the value of Options.NodeImage with which StartKind builds a node image instead
// of pulling one.
const BuildNodeImage = "build"

// A kindCluster is a cluster that kind creates. Its nodes are containers of a container engine
// (package docker).
type kindCluster struct {
	*Cluster
	options   Options
	software  *build.Software
	name      string // the cluster's name in kind
	engine    docker.Engine
	kindNodes []*kindNode // the same nodes as in Cluster.nodes
}

// StartKind creates a cluster of two nodes with kind, and returns when the cluster is ready to run
// pods. StartKind requires root. If Docker is not running on this machine, StartKind unpacks the
// distribution's packages and runs Docker in an emulated machine (package machine). The first call
// builds the software, which takes minutes. Call Stop to remove the cluster. The cluster is also
// removed when this process ends.
func StartKind(ctx context.Context, o Options) (*Cluster, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New(
			"starting a kind cluster requires root to enter the nodes' namespaces")
	}
	o.setDefaults()
	p := newProgress(o.Name, o.Log)
	usesHostEngine := docker.Runs(ctx)
	software, err := build.ForKind(ctx, p, !usesHostEngine, o.NodeImage == BuildNodeImage)
	if err != nil {
		return nil, err
	}
	k := &kindCluster{
		options: o, software: software, name: fmt.Sprintf("%s-%d", o.Name, os.Getpid()),
	}
	if usesHostEngine {
		k.engine, err = docker.UseHost(software.Kind, o.Dir, k.name)
	} else {
		k.engine, err = docker.StartNamespaced(ctx, software, o.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("start docker: %w", err)
	}
	k.Cluster = &Cluster{
		progress: p, kubeconfig: filepath.Join(k.engine.Dir(), "kubeconfig"),
		copyLogs: k.collectLogs, remove: k.engine.Close,
	}
	if err := k.create(ctx); err != nil {
		err = fmt.Errorf("start cluster %s: %w", k.name, err)
		return nil, errors.Join(err, k.collectFailed(software.Logs), k.remove())
	}
	return k.Cluster, nil
}

// create creates the nodes with kind, and installs the pods' network, images and DNS.
func (k *kindCluster) create(ctx context.Context) error {
	err := k.progress.waitUntil(ctx, "docker responds", func(ctx context.Context) error {
		return withOutput(k.engine.Command(ctx, "docker", "version").CombinedOutput())
	})
	if err != nil {
		return err
	}
	image, err := k.nodeImage(ctx)
	if err != nil {
		return err
	}
	if err := k.createNodes(ctx, image); err != nil {
		return err
	}
	if err := k.findNodes(ctx); err != nil {
		return err
	}
	if err := k.createClients(); err != nil {
		return err
	}
	if err := k.installPodNetwork(ctx); err != nil {
		return err
	}
	return k.makeReady(ctx, k.options, k.software)
}

// createNodes creates the nodes with kind.
func (k *kindCluster) createNodes(ctx context.Context, image string) error {
	config := k.options.render("kind.yaml", nil)
	argv := []string{"kind", "create", "cluster", "--name=" + k.name, "--config=-", "--retain"}
	if image != "" {
		argv = append(argv, "--image="+image)
	}
	create := k.engine.Command(ctx, argv...)
	progress := &lineLog{log: func(line string) {
		// kind prints a line with a bullet and an emoji when a step begins, and another line when
		// it ends. Only the line at the beginning is logged, without the emoji.
		if step, isStep := strings.CutPrefix(line, "• "); isStep {
			texts := strings.FieldsFunc(step, func(r rune) bool { return r > unicode.MaxASCII })
			k.progress.logf("kind: %s", strings.TrimSpace(texts[0]))
		}
	}}
	create.Stdin, create.Stdout, create.Stderr = bytes.NewReader(config), progress, progress
	if err := create.Run(); err != nil {
		_ = k.findNodes(ctx) // collectLogs needs the nodes
		err = fmt.Errorf("kind create cluster: %w: %s", err, progress.lastLines())
		if strings.Contains(progress.lastLines(), "failed to pull image") {
			err = withBuildHint(err)
		}
		return err
	}
	return nil
}

// findNodes stores the nodes that kind reports, sorted by name. The node with the control plane is
// the first one, because its name ends with -control-plane and the other node's with -worker.
func (k *kindCluster) findNodes(ctx context.Context) error {
	out, err := k.engine.Command(ctx, "kind", "get", "nodes", "--name="+k.name).Output()
	if err != nil {
		return fmt.Errorf("kind get nodes: %w", err)
	}
	for _, name := range slices.Sorted(slices.Values(strings.Fields(string(out)))) {
		n := &kindNode{cluster: k, name: name}
		if err := n.findProcess(ctx); err != nil {
			return err
		}
		k.kindNodes = append(k.kindNodes, n)
		k.nodes = append(k.nodes, n)
	}
	if len(k.kindNodes) == 0 {
		return errors.New("kind get nodes: no nodes")
	}
	return nil
}
