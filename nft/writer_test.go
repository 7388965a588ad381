package nft

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// writeWithoutPause adds chains to a foreign table until stop is called.
func writeWithoutPause(t *testing.T, ns *netns.NS) (stop func()) {
	table := rules.Table{Name: "foreign"}
	return commitWithoutPause(t, ns, func(i int) *Transaction {
		e := newEncoder(anyGeneration)
		e.table = &table
		if i == 0 {
			_ = e.writeTable(&table)
			return e.transaction()
		}
		e.beginMessage(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, description{})
		e.addText(unix.NFTA_CHAIN_TABLE, table.Name)
		e.addText(unix.NFTA_CHAIN_NAME, fmt.Sprint(i%1000))
		e.end()
		return e.transaction()
	})
}

// updateWithoutPause changes the elements of the sets from one version to the other and back,
// until stop is called.
func updateWithoutPause(t *testing.T, ns *netns.NS, versions []rules.Ruleset) (stop func()) {
	var updates [2]*Transaction
	for i := range updates {
		from, to := &versions[i].Tables[0], &versions[1-i].Tables[0]
		elements := map[string]int{}
		for _, m := range from.Sets() {
			elements[m.Set] = addrElementCount(m.Ranges)
		}
		changes, onlySetsDiffer := changedSets(to, &foundTable{Table: *from, elements: elements})
		if !onlySetsDiffer {
			t.Fatal("the versions differ in more than elements")
		}
		updates[i] = encodeUpdate(to, changes, anyGeneration)
	}
	return commitWithoutPause(t, ns, func(i int) *Transaction { return updates[i%2] })
}

// commitWithoutPause commits transactions continuously until stop is called.
func commitWithoutPause(t *testing.T, ns *netns.NS, next func(i int) *Transaction) (stop func()) {
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		withConn(t, ns, func(c *conn) error {
			for i := 0; ; i++ {
				if err := c.commit(next(i)); err != nil {
					return err
				}
				if i == 0 {
					close(begun)
				}
				select {
				case <-end:
					return nil
				default:
				}
			}
		})
	}()
	select {
	case <-begun:
	case <-ended: // the first transaction has failed
	}
	return func() {
		close(end)
		<-ended
	}
}
