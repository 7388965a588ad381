package suite_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var installation = part{name: "installation", proofs: []proof{
	{
		"the DaemonSet is ready, our element is the last of each chain, and the others are byte for byte what they were",
		provesTheChain,
	},
	{"the API server accepts the manifests of every platform", provesTheManifests},
	{"helm test passes", provesHelmTest},
	{"one pod of the mesh talks to another through both proxies", provesTheMesh},
}}

func provesTheChain(t *testing.T, w *world) {
	eventually(t, readyTime, "the agents are ready", func(ctx context.Context) error {
		return w.agentsReady(ctx, agent)
	})
	for _, n := range w.Nodes() {
		before, now := elements(t, w.chains[n.Name()]), elements(t, conflist(t, n))
		if len(now) != len(before)+1 || typeOf(t, now[len(now)-1]) != "sluice-cni" {
			t.Fatalf("the chain of %s: %s", n.Name(), conflist(t, n))
		}
		for i := range before {
			if !bytes.Equal(before[i], now[i]) {
				t.Errorf("element %d of %s was %s, and is %s", i, n.Name(), before[i], now[i])
			}
		}
	}
}

// provesTheManifests asks by a dry run on the server. Kinds of OpenShift and Multus, of which this
// cluster knows nothing, are left out.
func provesTheManifests(t *testing.T, w *world) {
	files, err := filepath.Glob("../../install/manifests/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	foreign := regexp.MustCompile(
		`(?m)^kind: (SecurityContextConstraints|NetworkAttachmentDefinition)$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		known := slices.DeleteFunc(strings.Split(string(text), "\n---\n"), foreign.MatchString)
		apply := w.node().Command(t.Context(), "kubectl", "apply", "--dry-run=server",
			"--filename=-")
		apply.Stdin = strings.NewReader(strings.Join(known, "\n---\n"))
		out, err := apply.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "daemonset.apps/"+agent) {
			t.Errorf("%s: %v\n%s", filepath.Base(file), err, out)
		}
	}
}

func provesHelmTest(t *testing.T, w *world) {
	out, err := w.helm(t.Context(), "test", release, "--timeout", readyTime.String())
	if err != nil || !strings.Contains(out, "Succeeded") {
		t.Errorf("%v\n%s", err, out)
	}
}

func provesTheMesh(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	pods := w.run(t, inMesh(ns, "a"), inMesh(ns, "b"))
	w.mustCapture(t, pods[0], pods[1])
	w.mustCapture(t, pods[1], pods[0])
}
