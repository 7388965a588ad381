package nft

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestExpressionsWithoutEffectInSluicesTable checks the decoding of expressions that have no effect
// on packets. Sluice creates none of them except counters. In its table they are differences.
func TestExpressionsWithoutEffectInSluicesTable(t *testing.T) {
	withoutAttributes := func(name string) func(*encoder) {
		return func(e *encoder) { e.writeExpression(name, func() {}) }
	}
	for _, row := range []struct {
		write   func(*encoder)
		want    string // in Sluice's table
		foreign string // in another table
	}{
		{withoutAttributes("counter"), "| counter accept", "| counter accept"},
		{withoutAttributes("log"), "| (log) accept", "| log accept"},
		{withoutAttributes("last"), "| (last) accept", "| last accept"},
		{
			func(e *encoder) { e.verdict(unix.NFT_CONTINUE, "") }, "| (continue) accept",
			"| continue accept",
		},
		{func(e *encoder) {
			e.immediate(hostBytes(0))
			e.encode(func(x *expressions) { x.addSetCT(unix.NFT_CT_EVENTMASK) })
		}, "| (ct event) accept", "| unknown(ct event) accept"},
		{func(e *encoder) {
			e.writeExpression("objref", func() {
				e.addNumber(unix.NFTA_OBJREF_IMM_TYPE, unix.NFT_OBJECT_COUNTER)
				e.addText(unix.NFTA_OBJREF_IMM_NAME, "n")
			})
		}, "| (counter name n) accept", `| counter name "n" accept`},
		{func(e *encoder) {
			e.writeExpression("target", func() { e.addText(unix.NFTA_TARGET_NAME, "NFLOG") })
		}, "| (-j NFLOG) accept", "| unknown(-j NFLOG) accept"},
	} {
		for _, table := range []string{rules.TableName, "foreign"} {
			want := row.want
			if table == "foreign" {
				want = row.foreign
			}
			e := &encoder{}
			e.addText(unix.NFTA_RULE_TABLE, table)
			rule := append(e.buf, dumpedRule(func(e *encoder) {
				row.write(e)
				e.verdict(1, "")
			})...)
			if got := formatRule(decodeRule(rules.Inet, nil, rule)); got != want {
				t.Errorf("table %s: got %s, want %s", table, got, want)
			}
		}
	}
}

// TestInsertedExpressionsAreDifferences inserts an expression into a rule of Sluice's table in the
// kernel. Only a counter is no difference.
func TestInsertedExpressionsAreDifferences(t *testing.T) {
	loadsAddr := func(name string, a attributes) bool {
		return name == "payload" && a.Number(unix.NFTA_PAYLOAD_LEN) == 4 &&
			a.Number(unix.NFTA_PAYLOAD_BASE) == unix.NFT_PAYLOAD_NETWORK_HEADER
	}
	comparesAddr := func(name string, a attributes) bool {
		return name == "cmp" && len(constantValue(a, unix.NFTA_CMP_DATA)) == 4
	}
	withoutAttributes := func(name string) func(*encoder) {
		return func(e *encoder) { e.writeExpression(name, func() {}) }
	}
	for _, row := range []struct {
		name    string
		after   func(name string, a attributes) bool
		insert  func(*encoder)
		differs bool
	}{
		{
			"conversion of an address", loadsAddr,
			func(e *encoder) { writeByteorder(e, 4, 4) }, true,
		},
		{"log to a group", comparesAddr, func(e *encoder) {
			e.writeExpression("log", func() { e.addAttr(unix.NFTA_LOG_GROUP, []byte{0, 5}) })
		}, true},
		{"log", comparesAddr, withoutAttributes("log"), true},
		{"continue", comparesAddr, func(e *encoder) { e.verdict(unix.NFT_CONTINUE, "") }, true},
		{"counter", comparesAddr, withoutAttributes("counter"), false},
	} {
		ns := netnstest.New(t)
		want := example("exclusions-dual")
		mustApply(t, ns, want, Created)
		var replaced int
		var err error
		if e := ns.Do(func() error {
			replaced, err = insertIntoRules(row.after, row.insert)
			return nil
		}); e != nil || err != nil {
			t.Fatal(row.name, e, err)
		}
		found, err := ReadSince(ns, 0, want.Routing)
		if err != nil {
			t.Fatal(row.name, err)
		}
		differences := rules.Compare(want, found.WithoutCounters())
		if replaced == 0 || (len(differences) > 0) != row.differs {
			t.Errorf("%s: %d rules replaced, differences %v; want differences: %t", row.name,
				replaced, differences, row.differs)
		}
	}
}

// insertIntoRules inserts an expression into the rules of Sluice's table, after each expression for
// which after returns true. It returns the number of changed rules. It does not change rules that
// look up a set, because only one rule can use an anonymous set.
func insertIntoRules(
	after func(name string, a attributes) bool, insert func(*encoder),
) (changed int, err error) {
	c, err := dial()
	if err != nil {
		return 0, err
	}
	defer c.close()
	var dumped []attributes
	_, err = c.dump(unix.NFT_MSG_GETRULE, rules.Inet, nil, func(_ uint8, a attributes) {
		if a.HasText(unix.NFTA_RULE_TABLE, rules.TableName) {
			dumped = append(dumped, slices.Clone(a))
		}
	})
	if err != nil {
		return 0, err
	}
	e := newEncoder(anyGeneration)
	e.table = &rules.Table{Family: rules.Inet, Name: rules.TableName}
	for _, a := range dumped {
		inserted, hasLookup := false, false
		list := encoder{table: e.table}
		attributes(a.Get(unix.NFTA_RULE_EXPRESSIONS)).Each(func(attrType uint16, value []byte) {
			list.addAttr(attrType|unix.NLA_F_NESTED, value)
			x := attributes(value)
			name := x.Text(unix.NFTA_EXPR_NAME)
			hasLookup = hasLookup || name == "lookup"
			if after(name, x.Get(unix.NFTA_EXPR_DATA)) {
				insert(&list)
				inserted = true
			}
		})
		if !inserted || hasLookup {
			continue
		}
		changed++
		e.beginMessage(unix.NFT_MSG_NEWRULE, unix.NLM_F_REPLACE, description{})
		for _, attr := range []uint16{
			unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN, unix.NFTA_RULE_HANDLE, unix.NFTA_RULE_USERDATA,
		} {
			if value := a.Get(attr); value != nil {
				e.addAttr(attr, value)
			}
		}
		e.addAttr(unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, list.buf)
		e.end()
	}
	return changed, c.commit(e.transaction())
}
