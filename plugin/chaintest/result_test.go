package chaintest_test

import (
	"encoding/json"
	"errors"
	"net"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/plugin/record/recordtest"
)

// TestResultEqualsThePreviousResult compares the result of sluice-cni with the previous result, in
// every version.
func TestResultEqualsThePreviousResult(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, version := range []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", latest} {
		for _, file := range []string{"sidecar", "not-injected"} {
			t.Run(version+" "+file, func(t *testing.T) {
				t.Parallel()
				p := n.newPod(t, file)
				c := chain{version: version}
				x := p.execution(t, "ADD", c, someResult(p))
				if err := x.run(n); err != nil {
					t.Fatal(err)
				}
				var given struct {
					PrevResult any `json:"prevResult"`
				}
				var printed any
				if err := json.Unmarshal(x.stdin, &given); err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(x.stdout.Bytes(), &printed); err != nil {
					t.Fatalf("standard output is not the result alone: %v: %q", err, &x.stdout)
				}
				if diff := cmp.Diff(given.PrevResult, printed); diff != "" {
					t.Errorf("result (-previous +printed):\n%s", diff)
				}
				for _, verb := range []string{"CHECK", "DEL"} {
					if verb == "CHECK" && version < "0.4.0" {
						continue
					}
					x := p.execution(t, verb, c, someResult(p))
					if err := x.run(n); err != nil || x.stdout.Len() > 0 {
						t.Errorf("%s: %v; standard output %q, want none", verb, err, &x.stdout)
					}
				}
			})
		}
	}
}

// TestHostNamespaceIsRejectedForEveryPod runs ADD with the node's namespace, for a pod of the mesh
// and for another pod.
func TestHostNamespaceIsRejectedForEveryPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, file := range []string{"sidecar", "not-injected"} {
		p := n.newPod(t, file)
		x := p.execution(t, "ADD", chain{version: latest}, someResult(p))
		x.environment["CNI_NETNS"] = "/proc/self/ns/net"
		var answer *types.Error
		if err := x.run(n); !errors.As(err, &answer) || answer.Code != types.ErrInvalidNetNS {
			t.Errorf("ADD of %s: %v; want a CNI error with code %d", file, err,
				types.ErrInvalidNetNS)
		}
	}
	n.checkRecords(t)
}

// someResult returns a result that a previous plugin could return for the pod.
func someResult(p *pod) *types100.Result {
	inSandbox := 1
	return &types100.Result{
		CNIVersion: latest,
		Interfaces: []*types100.Interface{
			{Name: "cni0", Mac: "ae:02:3b:3b:18:18"},
			{Name: "eth0", Mac: "96:03:6f:be:08:36", Sandbox: p.path},
		},
		IPs: []*types100.IPConfig{{
			Interface: &inSandbox,
			Address:   net.IPNet{IP: net.IPv4(10, 244, 7, 9).To4(), Mask: net.CIDRMask(16, 32)},
			Gateway:   net.IPv4(10, 244, 0, 1),
		}},
	}
}

// decodeResult decodes a result of the version.
func decodeResult(version string, text []byte) (*types100.Result, error) {
	result, err := create.Create(version, text)
	if err != nil {
		return nil, err
	}
	return types100.NewResultFromResult(result)
}

// checkRecords fails the test unless the plugin has records of exactly these pods.
func (n *node) checkRecords(t testing.TB, pods ...*pod) {
	t.Helper()
	var want, got []string
	for _, p := range pods {
		want = append(want, p.id)
	}
	records, err := recordtest.List(record.In(n.run))
	if err != nil {
		t.Error(err)
	}
	for _, r := range records {
		got = append(got, r.ContainerID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("attachments with a record (-want +got):\n%s", diff)
	}
}
