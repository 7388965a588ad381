package nft

import (
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// maxComment is the maximum length of a comment that nft accepts (NFTNL_UDATA_COMMENT_MAXLEN).
const maxComment = 128

// checkRule returns an error for a rule with values that the encoder does not support.
// [rules.Compile] does not create such rules. The encoder itself rejects unsupported types of
// matches and actions.
func checkRule(r *rules.Rule) error {
	var errs []error
	for _, m := range r.Matches {
		if err := checkMatch(m); err != nil {
			errs = append(errs,
				fmt.Errorf("the nf_tables encoder does not support the match %s: %w", m, err))
		}
	}
	for _, a := range r.Actions {
		if err := checkAction(a); err != nil {
			errs = append(errs,
				fmt.Errorf("the nf_tables encoder does not support the action %s: %w", a, err))
		}
	}
	if err := checkComment(r.Comment); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// checkMatch returns an error for a match with values that the encoder does not support.
func checkMatch(m rules.Match) error {
	values := valueCount(m)
	switch m := m.(type) {
	case rules.MatchInterface:
		for _, n := range m.Names {
			if len(n.Name) >= interfaceNameLength {
				return fmt.Errorf("the name is longer than %d bytes", interfaceNameLength-1)
			}
			if n.Prefix && values > 1 {
				return errors.New("the encoder cannot put the prefix of a name into a set")
			}
		}
	case rules.MatchFamily:
		if m.Family == rules.Inet {
			values = 0
		}
	case rules.MatchState:
		if m.States.Has(rules.SNAT) || m.States.Has(rules.DNAT) {
			return errors.New("SNAT and DNAT are not states of nf_tables")
		}
		if m.States == 0 {
			values = 0
		}
	case rules.MatchCgroup:
		if m.ID == 0 || m.Level == 0 {
			return errors.New("it needs the number and the level of the cgroup")
		}
	case rules.MatchOwner:
		if m.Socketless {
			return errors.New("nf_tables cannot match packets without a socket")
		}
	case rules.MatchMarkRange, rules.MatchICMP, rules.MatchTuple:
		return nil // the encoder rejects these types
	}
	if values == 0 {
		return errors.New("it needs at least one value")
	}
	return nil
}

// checkAction returns an error for an action with values that the encoder does not support.
func checkAction(a rules.Action) error {
	switch a := a.(type) {
	case rules.RedirectTo:
		if a.Port == 0 || a.Last != 0 && a.Last != a.Port {
			return errors.New("it must have exactly one port")
		}
	case rules.TProxy:
		if a.Port == 0 || a.Addr.IsValid() {
			return errors.New("it must have a port and no address")
		}
	}
	return nil
}

func checkComment(comment string) error {
	if len(comment) > maxComment {
		return fmt.Errorf("the comment is longer than %d bytes", maxComment)
	}
	return nil
}
