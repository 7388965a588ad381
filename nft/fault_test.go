package nft

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestApplyReadsAgainAfterALostAcknowledgement drops or truncates the answer to the first
// transaction, which the kernel may have executed.
func TestApplyReadsAgainAfterALostAcknowledgement(t *testing.T) {
	for _, row := range []struct {
		name string
		// first answers the first transaction.
		first script
	}{
		{"an executed transaction", func(request []byte, kernel func([]byte) [][]byte) [][]byte {
			kernel(request)
			return nil
		}},
		{"a transaction that is not executed", func([]byte, func([]byte) [][]byte) [][]byte { return nil }},
		{"an executed transaction with a malformed answer", func(
			request []byte, kernel func([]byte) [][]byte,
		) [][]byte {
			return [][]byte{kernel(request)[0][:10]}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			mustApply(t, ns, example("sidecar-ipv4"), Created)
			var batches atomic.Int32
			c := scripted(t, ns, func(request []byte, kernel func([]byte) [][]byte) [][]byte {
				if isBatch(request) && batches.Add(1) == 1 {
					return row.first(request, kernel)
				}
				return kernel(request)
			})
			a := newApplier(c.withShortTimeout(t), mustPrepare(t, example("exclusions-dual")),
				ApplyOptions{})
			if err := a.apply(step{}); err != nil {
				t.Fatal(err)
			}
			if a.result.Outcome != Replaced {
				t.Errorf("outcome %s, want %s", a.result.Outcome, Replaced)
			}
			want := example("exclusions-dual")
			want.Routing = rules.Routing{} // apply adds only the rules
			checkRuleset(t, ns, want)
		})
	}
}

// TestApplyReadsAgainIfTheReceiveBufferIsFull fills the receive buffer with unread answers. The
// buffer has no room for the answer to the transaction. Then the kernel reports ENOBUFS, even if it
// has executed the transaction.
func TestApplyReadsAgainIfTheReceiveBufferIsFull(t *testing.T) {
	ns := netnstest.New(t)
	rs := example("sidecar-ipv4")
	withConn(t, ns, func(c *conn) error {
		a := newApplier(c, mustPrepare(t, rs), ApplyOptions{})
		tx, err := Encode(rs)
		if err != nil {
			return err
		}
		for _, state := range []string{"executed", "rejected, because the table exists"} {
			fillReceiveBuffer(t, c)
			err = c.commit(tx)
			var lost *nlmsg.LostError
			if !errors.As(err, &lost) || !errors.Is(err, unix.ENOBUFS) {
				t.Fatalf("%s: %v, want ENOBUFS for the lost answer", state, err)
			}
			if err := a.apply(step{}); err != nil {
				t.Fatalf("%s: %v", state, err)
			}
			if a.result.Outcome != Unchanged {
				t.Errorf("%s: outcome %s, want %s", state, a.result.Outcome, Unchanged)
			}
		}
		return nil
	})
	checkRuleset(t, ns, rs)
}

// fillReceiveBuffer sends requests and does not read their answers, which exceed the receive
// buffer.
func fillReceiveBuffer(t *testing.T, c *conn) {
	t.Helper()
	// The kernel replaces 0 with the minimum size.
	if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0); err != nil {
		t.Fatal(err)
	}
	var m messages
	m.begin(messageType(unix.NFT_MSG_GETGEN), 0, 7, unix.NFPROTO_UNSPEC, 0)
	m.end()
	for range 100 {
		if err := c.send(m.buf); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFailedTransactionLeavesNoUnreadMessages covers batches with several rejected messages. The
// kernel answers each rejected message. The next request must not receive one of these answers.
func TestFailedTransactionLeavesNoUnreadMessages(t *testing.T) {
	ns := netnstest.New(t)
	rs := example("sidecar-ipv4")
	withConn(t, ns, func(c *conn) error {
		tx, err := Encode(rs)
		if err != nil {
			return err
		}
		if err := c.commit(tx); err != nil {
			return err
		}
		for range 3 {
			var kernelErr *KernelError
			if err := c.commit(tx); !errors.As(err, &kernelErr) || kernelErr.Errno != unix.EEXIST ||
				kernelErr.msg != unix.NFT_MSG_NEWTABLE {
				t.Fatalf("error %v, want an error because the table exists", err)
			}
			if id, err := c.generation(); err != nil || id == 0 {
				t.Errorf("generation %d, error %v, want a generation other than 0", id, err)
			}
			if found, err := c.findSluiceTable(); err != nil || found == nil ||
				found.Name != rules.TableName {
				t.Errorf("table %+v, error %v, want the table %s", found, err, rules.TableName)
			}
		}
		return nil
	})
}

// TestAnInterruptedDumpIsRepeated marks the first answer to each kind of request as interrupted,
// and drops all datagrams of the answer but the last.
func TestAnInterruptedDumpIsRepeated(t *testing.T) {
	ns := netnstest.New(t)
	rs := example("exclusions-dual")
	mustApply(t, ns, rs, Created)
	var seen sync.Map
	c := scripted(t, ns, func(request []byte, kernel func([]byte) [][]byte) [][]byte {
		datagrams := kernel(request)
		dump := native.Uint16(request[6:])&unix.NLM_F_DUMP == unix.NLM_F_DUMP
		if _, again := seen.LoadOrStore(firstMessageType(request), true); dump && !again {
			last := datagrams[len(datagrams)-1]
			native.PutUint16(last[6:], native.Uint16(last[6:])|unix.NLM_F_DUMP_INTR)
			return datagrams[len(datagrams)-1:]
		}
		return datagrams
	})
	found, err := c.findSluiceTable()
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := c.readSluiceTable(found, newExpectation(nil))
	if err != nil {
		t.Fatal(err)
	}
	diffs := rules.Compare(rules.Ruleset{Tables: rs.Tables},
		rules.Ruleset{Tables: []rules.Table{snapshot.tables[0].Table}})
	if len(diffs) > 0 {
		t.Errorf("the read table differs from the applied one:\n%s", listing(diffs))
	}
	for _, msg := range []int{
		unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETRULE, unix.NFT_MSG_GETSET, unix.NFT_MSG_GETSETELEM,
	} {
		if _, requested := seen.Load(messageType(msg)); !requested {
			t.Errorf("no request for %s, want at least one", dumpNames[msg])
		}
	}
}

// TestDumpThatIsAlwaysInterruptedFails checks that the dump ends with an error after a bounded
// number of requests.
func TestDumpThatIsAlwaysInterruptedFails(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	load(t, ns, "table inet sluice { chain c { }; }")
	var requests atomic.Int32
	c := scripted(t, ns, func(request []byte, kernel func([]byte) [][]byte) [][]byte {
		requests.Add(1)
		datagrams := kernel(request)
		for _, datagram := range datagrams {
			native.PutUint16(datagram[6:], native.Uint16(datagram[6:])|unix.NLM_F_DUMP_INTR)
		}
		return datagrams
	})
	found, err := c.findSluiceTable()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.readSluiceTable(found, newExpectation(nil)); !errors.Is(err, errBusy) ||
		!strings.Contains(err.Error(), "another process") {
		t.Errorf("error %v, want %v with the text \"another process\"", err, errBusy)
	}
	if n := requests.Load(); n > 100*maxReads {
		t.Errorf("%d requests, want at most %d", n, 100*maxReads)
	}
}

// TestApplyReadsAgainWithTheLock covers other calls of Apply that change the ruleset during every
// read, until the tested call holds the lock.
func TestApplyReadsAgainWithTheLock(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	load(t, ns, "table inet sluice { chain c { }; }")
	locked := func() bool {
		release, acquired, err := ns.Lock(0)
		if err != nil {
			t.Error(err)
			return true
		}
		release()
		return !acquired
	}
	var interrupted atomic.Bool
	c := scripted(t, ns, func(request []byte, kernel func([]byte) [][]byte) [][]byte {
		datagrams := kernel(request)
		if locked() {
			return datagrams
		}
		for _, datagram := range datagrams {
			interrupted.Store(true)
			native.PutUint16(datagram[6:], native.Uint16(datagram[6:])|unix.NLM_F_DUMP_INTR)
		}
		return datagrams
	})
	want := example("sidecar-ipv4")
	err := ns.Do(func() error {
		return newApplier(c, mustPrepare(t, want), ApplyOptions{}).run()
	})
	if err != nil || !interrupted.Load() {
		t.Fatalf("interrupted: %t, error %v, want success after an interrupted read",
			interrupted.Load(), err)
	}
	checkRuleset(t, ns, want)
}

// TestUnresponsiveKernelIsAnError covers a kernel that answers no request, and a kernel that
// answers only the first request.
func TestUnresponsiveKernelIsAnError(t *testing.T) {
	for _, answered := range []int32{0, 1} {
		t.Run(fmt.Sprintf("after %d answers", answered), func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			c := scripted(t, netnstest.New(t), func(
				request []byte, kernel func([]byte) [][]byte,
			) [][]byte {
				if requests.Add(1) > answered {
					return nil
				}
				return kernel(request)
			})
			a := newApplier(c.withShortTimeout(t), mustPrepare(t, example("sidecar-ipv4")),
				ApplyOptions{})
			if err := a.apply(step{}); err == nil ||
				!strings.Contains(err.Error(), "the kernel does not answer") {
				t.Errorf("error %v, want the error that the kernel does not answer", err)
			}
			if n := requests.Load(); n > 3 {
				t.Errorf("%d requests, want at most 3", n)
			}
		})
	}
}
