package nft

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// decodeRules reads a rule as the rules of the model that do the same: several where a verdict map ends it, one for each verdict, all
// with the rule's handle. They cannot be written back one by one.
func decodeRules(family rules.Family, sets setDecoder, a attributes) []rules.Rule {
	d := ruleDecoder{family: family, sets: sets, splits: true}
	d.decode(a)
	if d.branches != nil {
		return d.branches
	}
	return []rules.Rule{d.rule}
}

// verdictMap reads a lookup of which the answer is a verdict. Where the map does not have the key the rule ends.
func (d *ruleDecoder) verdictMap(a attributes, s *decodedSet) error {
	if !d.splits || s.verdicts == nil || a.number(unix.NFTA_LOOKUP_DREG) != unix.NFT_REG_VERDICT || a.number(unix.NFTA_LOOKUP_FLAGS) != 0 {
		return errUnsupported
	}
	groups, err := s.byVerdict()
	if err != nil {
		return err
	}
	op := d.load(a, unix.NFTA_LOOKUP_SREG)
	branches := make([]rules.Rule, 0, len(groups))
	for i, g := range groups {
		// The kernel looks once. A rule behind one whose chain may have changed the mark would look at another.
		if jump, ok := g.verdict.(rules.Jump); ok && !jump.Goto && i+1 < len(groups) && op.isMark() {
			return errUnsupported
		}
		branch := *d
		branch.rule.Matches, branch.rule.Actions = slices.Clone(d.rule.Matches), slices.Clone(d.rule.Actions)
		if err := branch.match(op, false, g.keys, ""); err != nil {
			return err
		}
		branch.act(g.verdict)
		branch.finish()
		branches = append(branches, branch.rule)
	}
	d.branches = branches
	return nil
}

// A verdictGroup is the keys of a verdict map that have the same verdict.
type verdictGroup struct {
	verdict rules.Action
	keys    [][2][]byte
}

// byVerdict groups the keys by verdict, in the order of each verdict's first key.
func (s *decodedSet) byVerdict() ([]verdictGroup, error) {
	keys, err := s.keys()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(keys, func(a, b [2][]byte) int { return slices.Compare(a[0], b[0]) })
	var groups []verdictGroup
	for _, key := range keys {
		verdict, err := decodeVerdict(s.verdicts[string(key[0])])
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(groups, func(g verdictGroup) bool { return g.verdict == verdict })
		if i < 0 {
			i = len(groups)
			groups = append(groups, verdictGroup{verdict: verdict})
		}
		groups[i].keys = append(groups[i].keys, key)
	}
	return groups, nil
}
