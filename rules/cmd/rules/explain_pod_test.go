package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/rules"
)

// TestExplainOfAPodKeepsTheTimeLimit uses a rule with thousands of ports. Its evaluation takes
// longer than a nanosecond.
func TestExplainOfAPodKeepsTheTimeLimit(t *testing.T) {
	var ports []string
	redirect := rules.DefaultRedirect()
	for port := 1; port <= 65535; port += 2 {
		ports = append(ports, strconv.Itoa(port))
		redirect.OutboundExcludePorts = append(redirect.OutboundExcludePorts,
			rules.Singles(uint16(port))...)
	}
	file := filepath.Join(t.TempDir(), "pod.yaml")
	pod := fmt.Sprintf(`kind: Pod
metadata:
  name: web
  annotations:
    sidecar.istio.io/status: '{}'
    traffic.sidecar.istio.io/excludeOutboundPorts: "%s"
spec: {containers: [{name: istio-proxy}]}
status: {podIPs: [{ip: 10.244.1.5}]}
`, strings.Join(ports, ","))
	if err := os.WriteFile(file, []byte(pod), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := startAgentWithPods(t, map[string]agent.Location{
		"web": {Decision: "redirect", Reason: "mesh-pod", Redirect: &redirect},
	})
	for _, name := range []string{file, "default/web"} {
		for limit, want := range map[string]string{
			"1ns": " gid 1000\n  Cannot decide: more than 1ns of work",
			"1m":  "The packet goes to its destination, not captured",
		} {
			code, stdout, stderr := runCommand(dir, "", "explain", "--pod", name, "--max-time", limit,
				"out tcp 10.244.1.5:40000 > 10.96.0.1:8081 uid 1000")
			if code != exitDone || !strings.Contains(stdout, want) {
				t.Errorf("--pod %s --max-time %s: exit code %d, want %d with %q: %.1000s%s", name, limit,
					code, exitDone, want, stdout, stderr)
			}
		}
	}
}
