package nft

import (
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/route"
)

// TestErrorAfterTheTransactionIsReturnedWithTheOutcome replaces a route by a conflicting one after
// the transaction. Because Apply does not hold the lock, it tries to add the missing route again,
// and fails.
func TestErrorAfterTheTransactionIsReturnedWithTheOutcome(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	holdLock(t, ns)
	ip := netnstest.RequireBinary(t, "ip")
	c := scripted(t, ns, func(request []byte, kernel func([]byte) [][]byte) [][]byte {
		answers := kernel(request)
		if isBatch(request) {
			for _, line := range []string{
				"route del local default dev lo table 133",
				"route add unreachable default table 133",
			} {
				if err := ns.Do(exec.Command(ip, strings.Fields(line)...).Run); err != nil {
					t.Errorf("ip %s: %v", line, err)
				}
			}
		}
		return answers
	})
	want := example("tproxy-dual")
	a := newApplier(c, mustPrepare(t, want), ApplyOptions{})
	err := ns.Do(a.run)
	if err == nil || !strings.HasPrefix(err.Error(),
		"the rules are in place, but not all of their routes: ") {
		t.Errorf("error %v, want an error about missing routes", err)
	}
	const routes = 5 // two policy rules, two routes and ::6
	if got := a.resultAfter(err); got.Outcome != Created || got.Rules == 0 || got.Bytes == 0 ||
		got.Routes != routes {
		t.Errorf("result %+v, want the created objects and %d routes", got, routes)
	}
	if nftCommand(t, ns, "", "list", "table", "inet", "sluice") == "" {
		t.Error("the table inet sluice is missing after the error")
	}
}

// TestOutcomeOfAFailureReportsRulesThatMayBeInPlace loses the answer to the first transaction and
// then rejects a request.
func TestOutcomeOfAFailureReportsRulesThatMayBeInPlace(t *testing.T) {
	isRead := func(request []byte) bool { return !isBatch(request) }
	for _, row := range []struct {
		name string
		// executed reports whether the first transaction reaches the kernel. rejects selects the
		// requests to reject after the first transaction.
		executed bool
		rejects  func(request []byte) bool
		want     Outcome
	}{
		{"the transaction is executed, then reading fails", true, isRead, Created},
		{"the transaction is not executed, then reading fails", false, isRead, Created},
		{"the transaction is not executed, then the second one is rejected", false, isBatch, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			var sent atomic.Bool
			c := scripted(t, ns, func(request []byte, kernel func([]byte) [][]byte) [][]byte {
				switch {
				case isBatch(request) && !sent.Swap(true):
					if row.executed {
						kernel(request)
					}
					return nil
				case sent.Load() && row.rejects(request):
					return [][]byte{encodeError(native.Uint32(request[8:]), unix.EPERM, 0)}
				}
				return kernel(request)
			})
			desired := example("tproxy-dual")
			a := newApplier(c.withShortTimeout(t), mustPrepare(t, desired), ApplyOptions{})
			err := ns.Do(a.run)
			if err == nil {
				t.Fatal("Apply succeeded, want an error")
			}
			const unknown = "the rules may have changed"
			if strings.Contains(err.Error(), unknown) != (row.want != "") {
				t.Errorf("error %v, want the text %q only with an outcome", err, unknown)
			}
			if got := a.resultAfter(err); got.Outcome != row.want ||
				(got != Result{}) != (row.want != "") {
				t.Errorf("result %+v, error %v, want outcome %q", got, err, row.want)
			}
			// Rules that may be in place need their routes.
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
