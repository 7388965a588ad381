package plugin_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/record"
)

// A pod with several attachments has one set of rules: they capture the families of all of them,
// whatever the order, and CHECK finds for each what it expects.
func TestSeveralAttachments(t *testing.T) {
	const v4, v6 = `{"address":"10.244.1.5/24"}`, `{"address":"fd00::5/64"}`
	for _, tc := range []struct {
		name, first, second string
		ipv6                bool
		noted               bool // that the second leaves IPv6 alone
	}{
		{"IPv4, then IPv4", v4, v4, false, false},
		{"IPv4, then IPv6", v4, v6, true, false},
		{"IPv6, then IPv4", v6, v4, true, false},
		{"IPv6, then both", v6, v4 + "," + v6, true, false},
		{"IPv4, then both", v4, v4 + "," + v6, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, ns := newWorld(t, "sidecar"), netnstest.New(t)
			first := newCall(t, ns)
			second := first
			second.ifname = "net1"
			for c, ips := range map[*sandboxCall]string{&first: tc.first, &second: tc.second} {
				c.prevResult = `{"cniVersion":"1.1.0","ips":[` + ips + `]}`
				c.stdin = c.with()
			}
			w.add(t, first)
			w.add(t, second)
			if _, noted := w.logged(t)[1]["ipv6-uncaptured"]; noted != tc.noted {
				t.Errorf("log: %s", w.stderr.String())
			}
			all, err := record.In(first.runDir).Of(first.id)
			if err != nil || len(all) != 2 {
				t.Fatalf("records: %+v, %v", all, err)
			}
			for _, r := range all {
				if r.Redirect == nil || r.Redirect.IPv6 != tc.ipv6 {
					t.Errorf("record of %s: %+v, want IPv6 %v", r.IfName, r.Redirect, tc.ipv6)
				}
			}
			for _, c := range []sandboxCall{first, second} {
				if e := w.call("CHECK", c); e != nil {
					t.Errorf("CHECK of %s: %+v", c.ifname, e)
				}
			}
		})
	}
}

// What is kept of other pods, of a pod that had the same id before, and of attachments that are
// left alone says nothing about this one.
func TestAttachmentsOfOtherPods(t *testing.T) {
	for name, change := range map[string]func(*record.Record){
		"of another container": func(r *record.Record) {
			r.ContainerID = strings.Repeat("e", 63)
		},
		"in another namespace": func(r *record.Record) { r.Netns = "/run/netns/other" },
		"of one that is left alone": func(r *record.Record) {
			r.Redirect, r.Outcome = nil, "skip"
		},
		"of a container named alike": func(r *record.Record) { r.ContainerID += "f" },
	} {
		t.Run(name, func(t *testing.T) {
			w, ns := newWorld(t, "sidecar"), netnstest.New(t)
			c := newCall(t, ns)
			w.add(t, c)
			other := c.record(t)
			other.IfName, other.Redirect.IPv6 = "net1", true
			change(&other)
			store := record.In(c.runDir)
			if err := store.Put(other); err != nil {
				t.Fatal(err)
			}
			w.add(t, c)
			if r := c.record(t); r.Redirect == nil || r.Redirect.IPv6 {
				t.Errorf("record: %+v", r.Redirect)
			}
			r, err := store.Get(other.Key)
			if diff := cmp.Diff(other, r,
				cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" || err != nil {
				t.Errorf("the other record: %s, %v", diff, err)
			}
		})
	}
}

// An attachment that is left alone takes nothing from the others.
func TestSecondAttachmentThatIsNotRedirected(t *testing.T) {
	w, ns := newWorld(t, "sidecar"), netnstest.New(t)
	first := newCall(t, ns)
	w.add(t, first)
	second := first
	second.ifname, second.stdin = "net1", first.with(`"exclude_namespaces":["shop"]`)
	w.add(t, second)
	if r := first.record(t); r.Redirect == nil {
		t.Errorf("record: %+v", r)
	}
	if e := w.call("CHECK", first); e != nil {
		t.Errorf("CHECK: %+v", e)
	}
}

// What the attachment itself had before says nothing: its addresses are those of this ADD.
func TestAttachmentIsNotAnotherAttachmentOfItsPod(t *testing.T) {
	w, ns := newWorld(t, "sidecar"), netnstest.New(t)
	c := newCall(t, ns)
	before := c
	before.prevResult = `{"cniVersion":"1.1.0","ips":[{"address":"fd00::5/64"}]}`
	before.stdin = before.with()
	w.add(t, before)
	w.add(t, c)
	if r := c.record(t); r.Redirect == nil || r.Redirect.IPv6 {
		t.Errorf("record: %+v", r.Redirect)
	}
}
