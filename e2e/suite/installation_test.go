package suite_test

import (
	"bytes"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/mesh"
)

var installation = part{name: "installation", proofs: []proof{
	{"the DaemonSet is ready, our element is the last of the chain, and the others are byte for byte what they were", provesTheChain},
	{"one pod of the mesh talks to another through both proxies", provesTheMesh},
}}

func provesTheChain(t *testing.T, w *world) {
	if err := w.agentsReady(t.Context(), agent); err != nil {
		t.Error(err)
	}
	before, now := elements(t, w.chain), elements(t, w.conflist(t))
	if len(now) != len(before)+1 || typeOf(t, now[len(now)-1]) != "sluice-cni" {
		t.Fatalf("%s", w.conflist(t))
	}
	for i := range before {
		if !bytes.Equal(before[i], now[i]) {
			t.Errorf("element %d was %s, and is %s", i, before[i], now[i])
		}
	}
}

func provesTheMesh(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	pods := w.run(t, mesh.Inject(mesh.Pod(ns, "a"), mesh.Sidecar{}), mesh.Inject(mesh.Pod(ns, "b"), mesh.Sidecar{}))
	w.mustCapture(t, pods[0], pods[1])
	w.mustCapture(t, pods[1], pods[0])
}
