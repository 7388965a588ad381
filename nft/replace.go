package nft

import (
	"errors"
	"reflect"

	"github.com/sluice-mesh/sluice/rules"
)

// encodeReplacement makes the table that was found into the wanted one. Chains that stay attached
// as they are keep their place and only get other rules. Were they created anew, a packet that is
// on its way through a hook while the kernel commits would meet both: the new one before it is
// filled and the old one after it is emptied, and not be captured (of 20 million packets sent while
// a table was deleted and created a million times, some 150 passed so); or both while they are
// filled, and a TPROXY rule that comes second takes the mark that the first has set for the proxy's
// own, so that the connection hangs. Neither happens where the chain stays.
//
// Where capture moves to another hook or priority, by a change of the mode or of the deviation
// nat-first, that cannot be had in one transaction; nobody does that to a pod in service.
func encodeReplacement(want *rules.Table, old *foundTable, generation uint32) (*Transaction, error) {
	if old.dormant {
		// Nothing else wakes the table.
		return encode(rules.Ruleset{Tables: []rules.Table{*want}}, []rules.Table{old.Table}, generation)
	}
	e := newEncoder(generation)
	e.table, e.deletes = want, true
	e.deleteRules()
	for _, name := range old.namedSets {
		e.deleteSet(name)
	}
	var missing []*rules.Chain
	for i := range want.Chains {
		if c := &want.Chains[i]; !sameAttachment(c, old.Chain(c.Name)) {
			missing = append(missing, c)
		}
	}
	for i := range old.Chains {
		if c := &old.Chains[i]; !sameAttachment(c, want.Chain(c.Name)) {
			e.deleteChain(c)
		}
	}
	if err := errors.Join(expressibleComment(want.Comment), e.fillTable(want, missing)); err != nil {
		return nil, err
	}
	return e.transaction(), nil
}

// sameAttachment reports whether b exists and is called from the same place as a.
func sameAttachment(a, b *rules.Chain) bool { return b != nil && reflect.DeepEqual(a.Base, b.Base) }
