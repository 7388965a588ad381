package compat_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func TestRemoveIstioKeepsRulesOfOtherPrograms(t *testing.T) {
	for _, c := range istiotest.Cases(t, istiotest.Legacy) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			ns := istiotest.Load(t, istiotest.Legacy, istiotest.Case{IPv4: c.IPv4, IPv6: c.IPv6})
			before := istiotest.Dump(t, ns, istiotest.Legacy)
			found, err := compat.FindLegacyIstio(ns)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, istiotest.Dump(t, ns, istiotest.Legacy)); diff != "" {
				t.Errorf("FindLegacyIstio changed the rules: -before +after:\n%s", diff)
			}
			removed, err := compat.RemoveLegacyIstio(ns)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(found, removed); diff != "" {
				t.Errorf("FindLegacyIstio and RemoveLegacyIstio differ: -found +removed:\n%s", diff)
			}
			want := istiotest.Remaining(t, istiotest.Legacy, c)
			if diff := cmp.Diff(want, istiotest.Dump(t, ns, istiotest.Legacy)); diff != "" {
				t.Errorf("remaining rules, -want +got:\n%s\nremoved:\n%s", diff, strings.Join(removed, "\n"))
			}
			if hasIstio := strings.Contains(c.IPv4+c.IPv6, ":ISTIO_"); hasIstio != (len(removed) > 0) {
				t.Errorf("removed %q, want rules to be removed: %t", removed, hasIstio)
			}
			wantNoIstioRules(t, ns)
		})
	}
}

// wantNoIstioRules verifies that RemoveLegacyIstio finds no rule to remove.
func wantNoIstioRules(t *testing.T, ns *netns.NS) {
	t.Helper()
	if removed, err := compat.RemoveLegacyIstio(ns); err != nil || len(removed) > 0 {
		t.Errorf("removed %q, error %v, want nothing", removed, err)
	}
}

func TestRemoveIstioCreatesNoTable(t *testing.T) {
	ns := netnstest.New(t)
	if found, err := compat.FindLegacyIstio(ns); err != nil || len(found) > 0 {
		t.Errorf("found %q, error %v, want nothing", found, err)
	}
	wantNoIstioRules(t, ns)
	if list, err := xtables.Tables(ns); err != nil || len(list) > 0 {
		t.Errorf("tables %v, error %v, want none", list, err)
	}
}

const istioAndOtherRules = `*nat
:OTHERS - [0:0]
:ISTIO_OUTPUT - [0:0]
:ISTIO_REDIRECT - [0:0]
-A PREROUTING -i net1 -j RETURN
-A OUTPUT -o net1 -j RETURN
-A OUTPUT -j ISTIO_OUTPUT
-A OTHERS -p udp -m udp --dport 53 -j RETURN
-A OTHERS -p tcp -m tcp --dport 80 -g ISTIO_REDIRECT
-A ISTIO_OUTPUT -p tcp -j ISTIO_REDIRECT
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
-A ISTIO_REDIRECT -j RETURN
COMMIT
`

func TestRemoveIstioReportsRemovedRules(t *testing.T) {
	ns := netnstest.New(t)
	istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv6, istioAndOtherRules)
	removed, err := compat.RemoveLegacyIstio(ns)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`iptables-legacy rule ip6 nat PREROUTING: iifname "net1" return`,
		`iptables-legacy rule ip6 nat OUTPUT: oifname "net1" return`,
		"iptables-legacy rule ip6 nat OUTPUT: jump ISTIO_OUTPUT",
		"iptables-legacy rule ip6 nat OTHERS: tcp dport 80 goto ISTIO_REDIRECT",
		"iptables-legacy chain ip6 nat ISTIO_OUTPUT (1 rule)",
		"iptables-legacy chain ip6 nat ISTIO_REDIRECT (2 rules)",
	}
	if diff := cmp.Diff(want, removed); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	remaining := istiotest.Save(t, ns, istiotest.Legacy, rules.IPv6)
	if !strings.Contains(remaining, "[0:0] -A OTHERS -p udp -m udp --dport 53 -j RETURN\nCOMMIT") {
		t.Errorf("remaining rules:\n%s\nwant only the rule for UDP in the chain OTHERS", remaining)
	}
}

func TestRemoveIstioDuringConcurrentWrites(t *testing.T) {
	ns := istiotest.Load(t, istiotest.Legacy, istiotest.Cases(t, istiotest.Legacy)[0])
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			// The rules are removed even if a concurrent replacement prevents setting the counters.
			var replaced *xtables.ReplacedError
			if _, err := compat.RemoveLegacyIstio(ns); err != nil && !errors.As(err, &replaced) {
				t.Error(err)
			}
		})
	}
	for range 20 {
		addRule(t, ns)
	}
	wg.Wait()
	wantNoIstioRules(t, ns)
	remaining := istiotest.Dump(t, ns, istiotest.Legacy)
	if n := strings.Count(remaining, "-A PORTMAP -p tcp -m tcp --dport 82 -j RETURN"); n != 20 ||
		strings.Contains(remaining, ":ISTIO_") {
		t.Errorf("%d added rules, want 20 and no chain of Istio in:\n%s", n, remaining)
	}
}

// addRule adds a rule to the chain PORTMAP. It retries, because iptables fails if another process
// changed the table.
func addRule(t *testing.T, ns *netns.NS) {
	t.Helper()
	const resourceProblem = 4 // iptables(8): exit status when resources are busy
	for range 100 {
		_, err := istiotest.TryRun(t, ns, "", "iptables-legacy", "-t", "nat", "-A", "PORTMAP", "-p",
			"tcp", "--dport", "82", "-j", "RETURN")
		if err == nil {
			return
		}
		if strings.Contains(err.Error(), "Invalid argument") {
			// The rule was added, but another process replaced the table before iptables set the
			// counters (do_add_counters).
			return
		}
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) ||
			exit.ExitCode() != resourceProblem {
			t.Fatal(err)
		}
	}
	t.Fatal("iptables-legacy failed 100 times because of other writers")
}

func TestRemoveIstioLeaksNothing(t *testing.T) {
	ns := netnstest.New(t)
	count := func(dir string) int {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	round := func() {
		istiotest.Restore(t, ns, istiotest.Legacy, rules.IPv6, istioAndOtherRules)
		if removed, err := compat.RemoveLegacyIstio(ns); err != nil || len(removed) != 6 {
			t.Fatalf("removed %q, error %v, want 6 objects", removed, err)
		}
	}
	round() // the first round starts the runtime's poller
	descriptors := count("/proc/self/fd")
	for range 20 {
		round()
	}
	// The kernel closes the sockets asynchronously.
	rulestest.Eventually(t, fmt.Sprintf("%d open descriptors", descriptors), func() bool {
		return count("/proc/self/fd") <= descriptors
	})
}

// The kernel accepts a table with an owner match only from a process in the user namespace that
// owns the network namespace. RemoveLegacyIstio keeps such rules of other programs, even in a pod
// with its own user namespace (hostUsers: false).
func TestRemoveIstioInAnotherUserNamespace(t *testing.T) {
	tproxy := istiotest.Cases(t, istiotest.Legacy)[1].IPv4
	for _, others := range []string{
		"[7:420] -A OUTPUT -o eth3 -j ACCEPT\n",
		"[7:420] -A OUTPUT -m owner --uid-owner 5 -j ACCEPT\n",
	} {
		t.Run(others, func(t *testing.T) {
			ns := netnstest.NewInUserNS(t)
			restoreInside(t, ns, "*mangle\n"+others+"COMMIT\n"+tproxy)
			_, err := compat.RemoveLegacyIstio(ns)
			remaining := istiotest.Dump(t, ns, istiotest.Legacy)
			if err != nil || strings.Contains(remaining, "ISTIO") || !strings.Contains(remaining, others) {
				t.Errorf("error %v, remaining rules:\n%s\nwant only %s", err, remaining, others)
			}
		})
	}
}

// restoreInside loads rules as a process of the user namespace that owns the network namespace.
func restoreInside(t *testing.T, ns *netns.NS, save string) {
	t.Helper()
	fd, err := unix.IoctlRetInt(ns.FD(), unix.NS_GET_USERNS)
	if err != nil {
		t.Fatal(err)
	}
	users := os.NewFile(uintptr(fd), "user namespace")
	defer users.Close()
	cmd := exec.Command(netnstest.RequireBinary(t, "nsenter"), "--user=/proc/self/fd/3",
		netnstest.RequireBinary(t, "iptables-legacy-restore"), "--noflush", "--counters")
	cmd.ExtraFiles = []*os.File{users}
	// The root user of the user namespace can open this file.
	cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE=/dev/null")
	cmd.Stdin = strings.NewReader(istiotest.WithCounters(save))
	err = ns.Do(func() error {
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Logf("%s", out)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
