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

// BuildNodeImage is the Options.NodeImage that StartKind builds, where no registry is reachable.
const BuildNodeImage = "build"

// A kindCluster is a cluster of kind, whose nodes are containers of an engine.
type kindCluster struct {
	*Cluster
	options  Options
	software *build.Software
	name     string // kind's for it
	engine   docker.Engine
	// containers are the nodes.
	containers []*kindNode
}

// StartKind makes a cluster of two nodes by kind, and returns when it is ready to run pods. It
// needs root. Where this machine runs no docker, one of its own is unpacked from the distribution's
// packages, and it runs in its own namespaces. The first time the software is built, which takes
// minutes. Stop it; when this process ends in another way the cluster ends with it.
func StartKind(ctx context.Context, o Options) (*Cluster, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New(
			"a cluster of kind needs root: its tests look into the nodes' namespaces")
	}
	o.setDefaults()
	s := newSteps(o.Name, o.Log)
	host := docker.Runs(ctx)
	software, err := build.ForKind(ctx, s, !host, o.NodeImage == BuildNodeImage)
	if err != nil {
		return nil, err
	}
	k := &kindCluster{
		options: o, software: software, name: fmt.Sprintf("%s-%d", o.Name, os.Getpid()),
	}
	if host {
		k.engine, err = docker.UseHost(software.Kind, o.Dir, k.name)
	} else {
		k.engine, err = docker.StartNamespaced(ctx, software, o.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("start a docker: %w", err)
	}
	k.Cluster = &Cluster{
		steps: s, kubeconfig: filepath.Join(k.engine.Dir(), "kubeconfig"), logs: k.collectLogs,
		end: k.engine.Close,
	}
	if err := k.create(ctx); err != nil {
		err = fmt.Errorf("start cluster %s: %w", k.name, err)
		return nil, errors.Join(err, k.collectFailed(o.Logs, software.Logs), k.end())
	}
	return k.Cluster, nil
}

// create creates the nodes of the cluster, and the parts that kind does not.
func (k *kindCluster) create(ctx context.Context) error {
	err := k.steps.reach(ctx, "docker answers", func(ctx context.Context) error {
		return outputText(k.engine.Command(ctx, "docker", "version").CombinedOutput())
	})
	if err != nil {
		return err
	}
	image, err := k.image(ctx)
	if err != nil {
		return err
	}
	if err := k.createNodes(ctx, image); err != nil {
		return err
	}
	if err := k.findNodes(ctx); err != nil {
		return err
	}
	if err := k.reach(); err != nil {
		return err
	}
	if err := k.connect(ctx); err != nil {
		return err
	}
	return k.ready(ctx, k.options, k.software)
}

// createNodes creates the nodes with kind.
func (k *kindCluster) createNodes(ctx context.Context, image string) error {
	config, err := encoded(k.options.kind())
	if err != nil {
		return err
	}
	argv := []string{"kind", "create", "cluster", "--name=" + k.name, "--config=-", "--retain"}
	if image != "" {
		argv = append(argv, "--image="+image)
	}
	create := k.engine.Command(ctx, argv...)
	progress := &lines{log: func(line string) {
		// Of each step it says that it begins, with a picture, and that it is done. The rest is for
		// who has not run it for a test.
		if step, is := strings.CutPrefix(line, "• "); is {
			words := strings.FieldsFunc(step, func(r rune) bool { return r > unicode.MaxASCII })
			k.steps.done("kind: %s", strings.TrimSpace(words[0]))
		}
	}}
	create.Stdin, create.Stdout, create.Stderr = bytes.NewReader(config), progress, progress
	if err := create.Run(); err != nil {
		_ = k.findNodes(ctx) // whose logs say more
		err = fmt.Errorf("kind create cluster: %w: %s", err, progress.kept())
		if strings.Contains(progress.kept(), "failed to pull image") {
			err = withoutRegistry(err)
		}
		return err
	}
	return nil
}

// findNodes lists the nodes, the one with the control plane first.
func (k *kindCluster) findNodes(ctx context.Context) error {
	out, err := k.engine.Command(ctx, "kind", "get", "nodes", "--name="+k.name).Output()
	if err != nil {
		return fmt.Errorf("kind get nodes: %w", err)
	}
	for _, name := range slices.Sorted(slices.Values(strings.Fields(string(out)))) {
		n := &kindNode{cluster: k, name: name}
		if err := n.find(ctx); err != nil {
			return err
		}
		k.containers = append(k.containers, n)
		k.nodes = append(k.nodes, n)
	}
	if len(k.containers) == 0 {
		return errors.New("kind get nodes: there are none")
	}
	return nil
}
