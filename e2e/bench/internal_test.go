package bench

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/e2e/bench/report"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

func newTestPod(t *testing.T) *netns.NS {
	t.Helper()
	netnstest.RequireRoot(t)
	ns, err := NewPod()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// The messages of rawNetlink create the whole ruleset, including its routing.
func TestRawNetlinkSendsAllMessages(t *testing.T) {
	ns := newTestPod(t)
	rs, err := Sidecar{IPv4Prefixes: 10, IPv6Prefixes: 10}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := newRawNetlink(rs)
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.apply(ns); err != nil {
		t.Fatal(err)
	}
	backend, err := compat.Choose(compat.BackendNFT)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := backend.Check(ns, rs, compat.Snapshot{}); err != nil ||
		len(found.Differences) > 0 {
		t.Errorf("differences %v, error %v, want none", found.Differences, err)
	}
	if err := raw.apply(ns); err == nil {
		t.Error("apply when the rules already exist: no error, want an error")
	}
}

func TestTrafficCountsLostDatagrams(t *testing.T) {
	ns := newTestPod(t)
	nft := netnstest.RequireBinary(t, "nft")
	measure := func() (lost, sent int) {
		traffic, err := startTraffic(ns)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-traffic.started:
		default:
			t.Error("startTraffic returned before the first datagram was answered")
		}
		lost, gap, err := traffic.stop()
		if err != nil {
			t.Fatal(err)
		}
		if lost == traffic.sent && gap < replyTimeout {
			t.Errorf("all %d datagrams lost, longest gap %v; want a gap of %v or more", lost, gap,
				replyTimeout)
		}
		return lost, traffic.sent
	}
	if lost, sent := measure(); lost != 0 || sent == 0 {
		t.Errorf("%d of %d datagrams lost without rules, want 0", lost, sent)
	}
	drop := Command{Path: nft, Args: []string{"-f", "-"}, Env: os.Environ(), NS: ns, Stdin: []byte(
		"add table inet t\nadd chain inet t in { type filter hook input priority 0; }\n" +
			"add rule inet t in udp dport > 0 drop\n")}
	if err := drop.Run(); err != nil {
		t.Fatal(err)
	}
	if lost, sent := measure(); lost != sent || sent == 0 {
		t.Errorf("%d of %d datagrams lost with a rule that drops all, want all", lost, sent)
	}
}

// The baseline tracks connections, as Sluice's rules do. An empty NAT chain alone does not enable
// conntrack.
func TestPacketBaselineEnablesConntrack(t *testing.T) {
	netnstest.RequireBinary(t, "nft")
	for _, row := range []struct {
		name    string
		p       installer
		entries string
	}{
		{"empty NAT chain", emptyNATChain("", ""), "0"},
		{"empty NAT chain and a rule that needs conntrack", emptyNATChain("", trackingChain), "1"},
	} {
		ns := newTestPod(t)
		if err := row.p.run(Tools{}, ns, Sidecar{}); err != nil {
			t.Fatal(err)
		}
		f, err := newTraffic(ns)
		if err != nil {
			t.Fatal(err)
		}
		err = f.establish()
		var count []byte
		if err == nil {
			err = ns.Do(func() (err error) {
				count, err = os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
				return err
			})
		}
		if err := errors.Join(err, f.close()); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(string(count)); got != row.entries {
			t.Errorf("%s: %s connections are tracked, want %s", row.name, got, row.entries)
		}
	}
}

// The times and the numbers of executed programs of commands in sequence are added. Their memory is
// the memory of the largest process.
func TestCostOfCommandsInSequence(t *testing.T) {
	shell := func(text string) *Command {
		return &Command{Path: "/bin/sh", Env: os.Environ(), Stdin: []byte(text)}
	}
	counted, err := inSequence([]*Command{
		shell("/bin/true; true"), shell("dd if=/dev/zero of=/dev/null bs=20000000 count=1"),
	}).Count()
	if err != nil {
		t.Fatal(err)
	}
	if counted[report.Executed] != 3 || counted[report.Memory] < 20e6 {
		t.Errorf("cost %v, want three executed programs besides the first shell, and the memory of dd", counted)
	}
	sample, err := inSequence([]*Command{shell("true"), shell("true")}).Do()
	if err != nil || sample[report.Wall] <= 0 || sample[report.CPU] <= 0 {
		t.Errorf("cost %v, error %v; want positive times", sample, err)
	}
	if _, err := inSequence([]*Command{shell("true"), shell("exit 3")}).Do(); err == nil {
		t.Error("Do with a second command that fails: no error, want an error")
	}
}

func TestReasonOfAnOmittedCandidateCountsItsRounds(t *testing.T) {
	runs := 0
	result := Measure(Row{Candidates: []Candidate{{
		Name: "fails in the third round",
		Prepare: func() (Task, error) {
			return Task{Do: func() (Sample, error) {
				runs++
				if runs == 4 { // the first run is not a round
					return nil, errors.New("broken")
				}
				return Sample{report.Rate: 1}, nil
			}}, nil
		},
	}}}, 5)
	const want = "after 2 rounds: broken"
	if len(result.Omitted) != 1 || result.Omitted[0].Text != want {
		t.Errorf("omitted %+v, want the reason %q", result.Omitted, want)
	}
}
