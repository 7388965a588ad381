package suite_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/e2e/mesh"
)

var inspection = part{name: "inspection", together: true, proofs: []proof{
	{"rules check in the agent finds nothing wrong with a live pod", provesCheck},
	{"no packet is treated otherwise than by istio-init with the same parameters", provesNoDifference},
}}

func provesCheck(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	a := w.run(t, mesh.Inject(mesh.Pod(ns, "a"), mesh.Sidecar{}))[0]
	if out, err := w.exec(t.Context(), w.agentPod(t), agent, "rules", "check", "--pod", a.Namespace+"/"+a.Name); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// istioTools is where the node has what is copied to it.
const istioTools = "/opt/sluice-e2e"

// provesNoDifference has a pod of ours, and one that the real istio-iptables redirects, with the parameters that the plugin has from the
// same annotations.
func provesNoDifference(t *testing.T, w *world) {
	for _, program := range []string{"istio-iptables", "rules"} {
		w.copyToNode(t, filepath.Join(bin, program))
	}
	ns := w.newNamespace(t)
	ours, theirs := mesh.Pod(ns, "ours"), mesh.Pod(ns, "theirs")
	ours.Annotations[mesh.ExcludeOutboundPorts] = "5432,6379"
	ours.Annotations[mesh.ExcludeRanges] = "10.1.0.0/16"
	s := mesh.Sidecar{Env: map[string]string{"ISTIO_META_DNS_CAPTURE": "true", "ISTIO_DUAL_STACK": "true"}}
	pods := w.run(t, mesh.Inject(ours, s), theirs)

	log, err := w.inNetns(t.Context(), w.mustSandbox(t, pods[1]), "env", "ISTIO_DUAL_STACK=true", istioTools+"/istio-iptables",
		"-p", "15001", "-z", "15006", "-u", "1337", "-g", "1337", "-m", "REDIRECT", "-i", "*", "-x", "10.1.0.0/16",
		"-b", "*", "-d", "15020,15021,15090", "-o", "5432,6379", "--redirect-dns", "--capture-all-dns")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.node().Path(istioTools+"/istio-init.log"), []byte(log), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := w.onNode(t.Context(), istioTools+"/rules", "diff", "--left", "netns:"+w.mustSandbox(t, pods[0]).netns,
		"--right", "log:"+istioTools+"/istio-init.log")
	if err != nil || !strings.Contains(out, "equivalent") {
		t.Errorf("%v: %s", err, out)
	}
}

// copyToNode makes a program known to the node, below istioTools.
func (w *world) copyToNode(t *testing.T, program string) {
	t.Helper()
	dir := w.node().Path(istioTools)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(filepath.Join(dir, filepath.Base(program)), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Error(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
}
