package nft

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// TestTransactionsOfAReplacement checks that a replacement needs more than one transaction only if
// capture moves to another base chain.
func TestTransactionsOfAReplacement(t *testing.T) {
	for _, tc := range []struct {
		from, to string
		want     int32
	}{
		{"sidecar-ipv4", "exclusions-dual", 1},
		{"tproxy-dual", "tproxy-keep-established", 1},
		{"sidecar-ipv4", "nothing-captured", 1},
		{"nothing-captured", "tproxy-dual", 1},
		{"sidecar-ipv4", "tproxy-dual", 3},
		{"tproxy-dual", "sidecar-ipv4", 3},
		{"sidecar-ipv4", "strict-istio", 3}, // other priorities
	} {
		t.Run(tc.from+" to "+tc.to, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			mustApply(t, ns, example(tc.from), Created)
			if n, err := applyCountingBatches(t, ns, example(tc.to), nil); err != nil || n != tc.want {
				t.Errorf("%d transactions, want %d (error %v)", n, tc.want, err)
			}
			checkTables(t, ns, example(tc.to))
		})
	}
}

// TestRejectedCaptureMove checks that no gate remains after the kernel has rejected any one of the
// three transactions.
func TestRejectedCaptureMove(t *testing.T) {
	for rejected := range int32(3) {
		t.Run(fmt.Sprintf("transaction %d", rejected+1), func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			from := example("sidecar-ipv4")
			mustApply(t, ns, from, Created)
			to := example("tproxy-dual")
			_, err := applyCountingBatches(t, ns, to, func(n int32) bool { return n == rejected+1 })
			if rejection := (*KernelError)(nil); !errors.As(err, &rejection) ||
				rejection.Errno != unix.EINVAL {
				t.Errorf("error %v, want a KernelError with EINVAL", err)
			}
			checkTables(t, ns, []rules.Ruleset{from, from, to}[rejected])
		})
	}
}

// TestLeftoverGateIsRemoved checks that the next Apply deletes the gate of a process that was
// killed.
func TestLeftoverGateIsRemoved(t *testing.T) {
	for _, next := range []string{"sidecar-ipv4", "tproxy-dual", "nothing-captured"} {
		t.Run(next, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			from := example("sidecar-ipv4")
			mustApply(t, ns, from, Created)
			withConn(t, ns, func(c *conn) error {
				gated, err := encodeGate(&from.Tables[0], 0)
				if err != nil {
					return err
				}
				return c.commit(gated)
			})
			mustApply(t, ns, example(next), Replaced)
			checkRuleset(t, ns, example(next))
		})
	}
}

// TestApplyGivesUpIfTheGateIsAlwaysDeleted covers another process that deletes the gate after each
// transaction that adds it. No transaction of Apply fails.
func TestApplyGivesUpIfTheGateIsAlwaysDeleted(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	from := example("sidecar-ipv4")
	mustApply(t, ns, from, Created)
	var deletion strings.Builder
	for _, c := range gate() {
		// The command to add the chain prevents an error if the chain does not exist.
		for _, verb := range []string{"add", "flush", "delete"} {
			fmt.Fprintf(&deletion, "%s chain inet %s %s\n", verb, rules.TableName, c.Name)
		}
	}
	nftBinary := netnstest.RequireBinary(t, "nft")
	c := scripted(t, ns, func(request []byte, kernel func([]byte) [][]byte) [][]byte {
		answers := kernel(request)
		if isBatch(request) {
			cmd := exec.Command(nftBinary, "-f", "-")
			cmd.Stdin = strings.NewReader(deletion.String())
			if err := ns.Do(cmd.Run); err != nil {
				t.Errorf("delete the gate: %v", err)
			}
		}
		return answers
	})
	err := newApplier(c, mustPrepare(t, example("tproxy-dual")), ApplyOptions{}).apply(step{})
	const reason = "concurrent changes by other processes"
	if err == nil || !strings.HasSuffix(err.Error(), reason) {
		t.Errorf("error %v, want an error that ends with %q", err, reason)
	}
	checkTables(t, ns, from)
}

// TestOutcomeAfterALostAnswerToAReplacementWithGate loses the answer to the second of the three
// transactions, which replaces the rules. Then the rules cannot be read, or the kernel rejects the
// last transaction.
func TestOutcomeAfterALostAnswerToAReplacementWithGate(t *testing.T) {
	for _, row := range []struct {
		name     string
		executed bool // the second transaction
		rejects  func(request []byte, batches int32) bool
		want     Outcome
	}{
		{"executed, then reading fails", true, func(r []byte, n int32) bool {
			return n == 2 && !isBatch(r)
		}, Replaced},
		{"executed, then the last transaction is rejected", true, func(_ []byte, n int32) bool {
			return n == 3
		}, Replaced},
		{"not executed, then it is rejected", false, func(_ []byte, n int32) bool {
			return n == 3
		}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			mustApply(t, ns, example("sidecar-ipv4"), Created)
			var batches atomic.Int32
			c := scripted(t, ns, func(request []byte, kernel func([]byte) [][]byte) [][]byte {
				if isBatch(request) && batches.Add(1) == 2 {
					if row.executed {
						kernel(request)
					}
					return nil
				}
				if row.rejects(request, batches.Load()) {
					return [][]byte{encodeError(native.Uint32(request[8:]), unix.EPERM, 0)}
				}
				return kernel(request)
			})
			a := newApplier(c.withShortTimeout(t), mustPrepare(t, example("tproxy-dual")),
				ApplyOptions{})
			err := ns.Do(a.run)
			if got := a.resultAfter(err); err == nil || got.Outcome != row.want {
				t.Errorf("result %+v, error %v, want an error and outcome %q", got, err, row.want)
			}
			found, err := route.Read(ns)
			if err != nil {
				t.Fatal(err)
			}
			if hasRoutes := len(found.Policies) > 0; hasRoutes != (row.want != "") {
				t.Errorf("routing %+v after outcome %q, want routes only with an outcome", found,
					row.want)
			}
		})
	}
}

// applyCountingBatches applies the tables of the ruleset, and returns the number of transactions
// and the error of the application. reject selects the transactions that the kernel rejects, by
// their number from 1. If reject is nil, the kernel rejects none.
func applyCountingBatches(
	t *testing.T, ns *netns.NS, rs rules.Ruleset, reject func(n int32) bool,
) (int32, error) {
	var batches atomic.Int32
	c := scripted(t, ns, func(request []byte, kernel func([]byte) [][]byte) [][]byte {
		if isBatch(request) {
			if n := batches.Add(1); reject != nil && reject(n) {
				secondMessage := native.Uint32(request) // its offset: the length of the first message
				unknown := messageType(0xff)
				native.PutUint16(request[secondMessage+4:], unknown)
			}
		}
		return kernel(request)
	})
	a := newApplier(c, mustPrepare(t, rs), ApplyOptions{})
	err := a.apply(step{})
	// If the kernel rejects the third transaction, which deletes the gate after the replacement, a
	// fourth one tries again.
	if replaced := batches.Load() > 3; err != nil &&
		(a.resultAfter(err).Outcome == Replaced) != replaced {
		t.Errorf("error after %d transactions, outcome %q; want %q only after the replacement",
			batches.Load(), a.resultAfter(err).Outcome, Replaced)
	}
	return batches.Load(), err
}

// checkTables checks that the namespace has exactly the tables of the ruleset. It ignores routes.
func checkTables(t *testing.T, ns *netns.NS, want rules.Ruleset) {
	t.Helper()
	got, err := Read(ns)
	if err != nil {
		t.Fatal(err)
	}
	if diffs := rules.Compare(rules.Ruleset{Tables: want.Tables},
		rules.Ruleset{Tables: got.Tables}); len(diffs) > 0 {
		t.Errorf("the namespace does not have exactly these tables:\n%s", listing(diffs))
	}
}
