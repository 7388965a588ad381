package plugin_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/record"
)

// TestSeveralAttachmentsShareOneSetOfRules checks that a pod with several attachments has one set
// of rules, and that CHECK accepts each attachment. The rules capture IPv6 if one of the
// attachments, in any order, has only IPv6 addresses: an attachment that also has an IPv4 address
// does not capture IPv6.
func TestSeveralAttachmentsShareOneSetOfRules(t *testing.T) {
	const v4, v6 = `{"address":"10.244.1.5/24"}`, `{"address":"fd00::5/64"}`
	for _, tc := range []struct {
		name, first, second string
		ipv6                bool
		logsUncaptured      bool // the second attachment logs that IPv6 is not captured
	}{
		{"IPv4, then IPv4", v4, v4, false, false},
		{"IPv4, then IPv6", v4, v6, true, false},
		{"IPv6, then IPv4", v6, v4, true, false},
		{"IPv6, then both", v6, v4 + "," + v6, true, false},
		{"both with IPv6 first, then IPv4", v6 + "," + v4, v4, false, false},
		{"IPv4, then both", v4, v4 + "," + v6, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
			first := newCall(t, ns)
			second := first
			second.ifname = "net1"
			for c, ips := range map[*sandboxCall]string{&first: tc.first, &second: tc.second} {
				c.prevResult = `{"cniVersion":"1.1.0","ips":[` + ips + `]}`
				c.stdin = c.configuration()
			}
			env.add(t, first)
			env.add(t, second)
			_, logsUncaptured := env.logLines(t)[1]["ipv6-uncaptured"]
			if logsUncaptured != tc.logsUncaptured {
				t.Errorf("the second attachment logs that IPv6 is not captured: %t, want %t: %s",
					logsUncaptured, tc.logsUncaptured, env.stderr.String())
			}
			all, err := record.In(first.runDir).Of(first.id)
			if err != nil || len(all) != 2 {
				t.Fatalf("records: %+v, error %v; want two", all, err)
			}
			for _, r := range all {
				if r.Redirect == nil || r.Redirect.IPv6 != tc.ipv6 {
					t.Errorf("record of %s: %+v, want IPv6 %v", r.IfName, r.Redirect, tc.ipv6)
				}
			}
			for _, c := range []sandboxCall{first, second} {
				if e := env.call("CHECK", c); e != nil {
					t.Errorf("CHECK of %s: %+v", c.ifname, e)
				}
			}
		})
	}
}

// TestAttachmentsOfOtherPodsHaveNoEffect checks that records of other pods, of an earlier pod with
// the same container id, and of attachments that are not redirected have no effect.
func TestAttachmentsOfOtherPodsHaveNoEffect(t *testing.T) {
	for name, change := range map[string]func(*record.Record){
		"a record of another container": func(r *record.Record) {
			r.ContainerID = strings.Repeat("e", 63)
		},
		"a record of another namespace": func(r *record.Record) { r.Netns = "/run/netns/other" },
		"a record of an attachment that is not redirected": func(r *record.Record) {
			r.Redirect, r.Outcome = nil, "skip"
		},
		"a record of a container with a similar id": func(r *record.Record) { r.ContainerID += "f" },
	} {
		t.Run(name, func(t *testing.T) {
			env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
			c := newCall(t, ns)
			env.add(t, c)
			other := c.record(t)
			other.IfName, other.Redirect.IPv6 = "net1", true
			change(&other)
			store := record.In(c.runDir)
			if err := store.Put(other); err != nil {
				t.Fatal(err)
			}
			env.add(t, c)
			if r := c.record(t); r.Redirect == nil || r.Redirect.IPv6 {
				t.Errorf("record: %+v, want IPv6 not captured", r.Redirect)
			}
			r, err := store.Get(other.Key)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(other, r,
				cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
				t.Errorf("the other record has changed (-before +after):\n%s", diff)
			}
		})
	}
}

// TestRulesReplaceAnUnreadableRecordOfAnotherAttachment checks that the rules in the namespace
// determine whether IPv6 stays captured if the record of another attachment was written by a newer
// plugin, or is damaged.
func TestRulesReplaceAnUnreadableRecordOfAnotherAttachment(t *testing.T) {
	const v4, v6 = `{"address":"10.244.1.5/24"}`, `{"address":"fd00::5/64"}`
	for name, row := range map[string]struct {
		first, text string
		ipv6        bool
	}{
		"a newer record, with IPv6":      {v6, `{"version":99}`, true},
		"a damaged record, with IPv6":    {v6, `{`, true},
		"a newer record, without IPv6":   {v4, `{"version":99}`, false},
		"a damaged record, without IPv6": {v4, `{`, false},
	} {
		t.Run(name, func(t *testing.T) {
			env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
			first := newCall(t, ns)
			second := first
			second.ifname = "net1"
			for c, ips := range map[*sandboxCall]string{&first: row.first, &second: v4} {
				c.prevResult = `{"cniVersion":"1.1.0","ips":[` + ips + `]}`
				c.stdin = c.configuration()
			}
			env.add(t, first)
			file := filepath.Join(first.runDir, "attachments", first.id+":eth0.json")
			if err := os.WriteFile(file, []byte(row.text), 0o600); err != nil {
				t.Fatal(err)
			}
			env.add(t, second)
			r, err := record.In(second.runDir).Get(record.Key{ContainerID: second.id, IfName: "net1"})
			if err != nil || r.Redirect == nil || r.Redirect.IPv6 != row.ipv6 {
				t.Errorf("record: %+v, error %v; want IPv6 captured: %t", r.Redirect, err, row.ipv6)
			}
			if log := env.stderr.String(); !strings.Contains(log, "other_records_error") {
				t.Errorf("log %s, want the error of the record", log)
			}
		})
	}
}

// TestSecondAttachmentThatIsNotRedirectedDoesNotAffectTheFirst checks that a second attachment that
// is not redirected does not affect the first attachment.
func TestSecondAttachmentThatIsNotRedirectedDoesNotAffectTheFirst(t *testing.T) {
	env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
	first := newCall(t, ns)
	env.add(t, first)
	second := first
	second.ifname, second.stdin = "net1", first.configuration(`"exclude_namespaces":["shop"]`)
	env.add(t, second)
	if r := first.record(t); r.Redirect == nil {
		t.Errorf("record of the first attachment: %+v, want it redirected", r)
	}
	if e := env.call("CHECK", first); e != nil {
		t.Errorf("CHECK: %+v", e)
	}
}

// TestRepeatedADDIgnoresItsEarlierRecord checks that a repeated ADD captures only the families of
// the addresses that it gets, even if the earlier ADD captured IPv6.
func TestRepeatedADDIgnoresItsEarlierRecord(t *testing.T) {
	env, ns := newTestEnv(t, "sidecar"), netnstest.New(t)
	c := newCall(t, ns)
	before := c
	before.prevResult = `{"cniVersion":"1.1.0","ips":[{"address":"fd00::5/64"}]}`
	before.stdin = before.configuration()
	env.add(t, before)
	env.add(t, c)
	if r := c.record(t); r.Redirect == nil || r.Redirect.IPv6 {
		t.Errorf("record: %+v, want IPv6 not captured", r.Redirect)
	}
}
