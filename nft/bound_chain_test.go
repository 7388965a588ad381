package nft

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestBoundChainsAreRemoved checks the removal of chains that the kernel deletes with the rule that
// jumps to them. The kernel rejects a message that deletes such a chain.
func TestBoundChainsAreRemoved(t *testing.T) {
	ns := netnstest.New(t)
	desired := example("sidecar-ipv4")
	mustApply(t, ns, desired, Created)
	load(t, ns, "insert rule inet sluice nat-output jump { accept; }\n"+
		"insert rule inet sluice nat-output-lo goto { counter; return; }")
	// The kernel numbers the chains of all namespaces.
	found := strings.Join(differences(t, ns, desired), "\n")
	for _, want := range []string{
		"extra in chain inet sluice nat-output: jump __chain",
		"extra in chain inet sluice nat-output-lo: goto __chain",
		"extra in the ruleset: chain inet sluice __chain",
	} {
		if !strings.Contains(found, want) {
			t.Errorf("before Apply: differences\n%s\nwant %q in them", found, want)
		}
	}
	mustApply(t, ns, desired, Replaced)
	mustApply(t, ns, desired, Unchanged)
}

// TestBoundChainsWithNamesOfSluiceAreReplaced checks that Apply does not use a bound chain that has
// the name of one of its own chains.
func TestBoundChainsWithNamesOfSluiceAreReplaced(t *testing.T) {
	for _, name := range []string{"nat-output-lo", gate()[0].Name} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := netnstest.New(t)
			if name != "nat-output-lo" { // the change from TPROXY adds the gate
				mustApply(t, ns, example("tproxy-dual"), Created)
			}
			addBoundChain(t, ns, name)
			mustApply(t, ns, example("sidecar-ipv4"), Replaced)
			mustApply(t, ns, example("sidecar-ipv4"), Unchanged)
		})
	}
}

// addBoundChain adds a bound chain, and a base chain that jumps to it, to the table of Sluice. It
// creates the table if necessary. nft cannot name a bound chain.
func addBoundChain(t *testing.T, ns *netns.NS, name string) {
	t.Helper()
	base := rules.Chain{
		Name: "foreign", Base: &rules.Base{Hook: rules.Output},
		Rules: []rules.Rule{{Actions: []rules.Action{rules.Jump{Chain: name}}}},
	}
	withConn(t, ns, func(c *conn) error {
		e := newEncoder(anyGeneration)
		e.table = &rules.Table{Family: rules.Inet, Name: rules.TableName}
		e.beginMessage(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, description{})
		e.addText(unix.NFTA_TABLE_NAME, rules.TableName)
		e.end()
		e.writeChain(&base)
		e.beginMessage(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, description{})
		e.addText(unix.NFTA_CHAIN_TABLE, rules.TableName)
		e.addText(unix.NFTA_CHAIN_NAME, name)
		e.addNumber(nftaChainFlags, nftChainBinding)
		e.end()
		if err := e.writeRule(&base, 0, nil); err != nil {
			return err
		}
		return c.commit(e.transaction())
	})
}

// TestMissingExpressionIsENOENTForANewChainOrRule checks for which messages ENOENT means that the
// kernel lacks a feature.
func TestMissingExpressionIsENOENTForANewChainOrRule(t *testing.T) {
	for msg, want := range map[int]bool{
		unix.NFT_MSG_NEWCHAIN: true, unix.NFT_MSG_NEWRULE: true, unix.NFT_MSG_DELCHAIN: false,
		unix.NFT_MSG_DELRULE: false, unix.NFT_MSG_DELSET: false,
	} {
		if e := (&KernelError{Errno: unix.ENOENT, msg: msg}); e.IsMissingExpression() != want {
			t.Errorf("%s: IsMissingExpression is %t, want %t", messageNames[msg], !want, want)
		}
	}
	if (&KernelError{Errno: unix.EBUSY, msg: unix.NFT_MSG_NEWRULE}).IsMissingExpression() {
		t.Error("IsMissingExpression is true for EBUSY, want false")
	}
}
