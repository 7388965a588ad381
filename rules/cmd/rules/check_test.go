package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// TestCheckPrintsDifferencesAlsoAfterAnError covers a pod without Sluice's rules whose tables of
// iptables-legacy are too large to read.
func TestCheckPrintsDifferencesAlsoAfterAnError(t *testing.T) {
	ns := netnstest.New(t)
	istiotest.RestoreLargeTable(t, ns, "nat")
	const stdout, stderr = "missing    table inet sluice", "the tables exceed the limit"
	code, out, errs := runCommand("", "", "check", "--netns",
		fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD()), "-b", "*", "-i", "*",
		"--pod-ip", "10.244.1.5", "--backend", "nft")
	if code != 1 || !strings.Contains(out, stdout) || !strings.Contains(errs, stderr) {
		t.Errorf("exit code %d: %s%s\nwant 1, %q, and on stderr %q", code, out, errs, stdout, stderr)
	}
}
