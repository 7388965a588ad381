package main

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// TestRequestsOfAnAgent checks the kinds of requests that the agent sends. The simulation of a
// large cluster contains the same list (checkRequests in e2e/scale).
func TestRequestsOfAnAgent(t *testing.T) {
	node := newTestNode(t)
	node.Issue(func(seconds int64) (string, time.Time) {
		expiry := time.Now().Add(time.Duration(seconds) * time.Second)
		text := apiservertest.JWT(apiservertest.Account, time.Now(), expiry)
		node.AddToken(text)
		return text, expiry
	})
	p := node.start("run")
	kinds := func() []string {
		kinds := map[string]bool{}
		for _, r := range node.Requests() {
			kinds[r.Kind()] = true
		}
		return slices.Sorted(maps.Keys(kinds))
	}
	first := []string{
		"create serviceaccounts/token", "get pods", "list daemonsets", "watch daemonsets", "watch pods",
	}
	node.waitReady()
	rulestest.Eventually(t, fmt.Sprintf("%d kinds of requests", len(first)), func() bool {
		return len(kinds()) >= len(first)
	})
	if d := cmp.Diff(first, kinds()); d != "" {
		t.Errorf("kinds of requests at the start (-want +got)\n%s", d)
	}
	node.end(p)
	all := append(first, "get daemonsets", "get nodes")
	slices.Sort(all)
	if d := cmp.Diff(all, kinds()); d != "" {
		t.Errorf("kinds of requests of the whole run (-want +got)\n%s", d)
	}
}
