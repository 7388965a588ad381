package nft

import (
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// maxComment is how long a comment may be: what the nft command shows (NFTNL_UDATA_COMMENT_MAXLEN).
const maxComment = 128

// expressible returns why a rule cannot be written in nf_tables, or nil; [rules.Compile] makes none
// of which that is so. What depends on the type alone is left to the encoder.
func expressible(r *rules.Rule) error {
	var faults []error
	for _, m := range r.Matches {
		if err := expressibleMatch(m); err != nil {
			faults = append(faults, fmt.Errorf("the match %s cannot be written in nf_tables: %w", m, err))
		}
	}
	for _, a := range r.Actions {
		if err := expressibleAction(a); err != nil {
			faults = append(faults, fmt.Errorf("the action %s cannot be written in nf_tables: %w", a, err))
		}
	}
	if err := expressibleComment(r.Comment); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

func expressibleMatch(m rules.Match) error {
	values := 1
	switch m := m.(type) {
	case rules.MatchInterface:
		values = len(m.Names)
		for _, n := range m.Names {
			if len(n.Name) >= interfaceNameLength {
				return fmt.Errorf("the name is longer than %d bytes", interfaceNameLength-1)
			}
			if n.Prefix && values > 1 {
				return errors.New("a set cannot hold the beginning of a name")
			}
		}
	case rules.MatchFamily:
		if m.Family == rules.Inet {
			values = 0
		}
	case rules.MatchAddr:
		values = len(m.Ranges)
	case rules.MatchProtocol:
		values = len(m.Protocols)
	case rules.MatchPort:
		values = len(m.Ports)
	case rules.MatchState:
		if m.States.Has(rules.SNAT) || m.States.Has(rules.DNAT) {
			return errors.New("SNAT and DNAT are no states there")
		}
		if m.States == 0 {
			values = 0
		}
	case rules.MatchOwner:
		values = len(m.IDs)
		if m.Socketless {
			return errors.New("it also matches packets without socket")
		}
	}
	if values == 0 {
		return errors.New("it has no value to compare with")
	}
	return nil
}

// expressibleAction refuses the forms of actions that the encoder does not write.
func expressibleAction(a rules.Action) error {
	switch a := a.(type) {
	case rules.RedirectTo:
		if a.Port == 0 || a.Last != 0 && a.Last != a.Port {
			return errors.New("it has not one port")
		}
	case rules.TProxy:
		if a.Port == 0 || a.Addr.IsValid() {
			return errors.New("it has an address, or no port")
		}
	}
	return nil
}

func expressibleComment(comment string) error {
	if len(comment) > maxComment {
		return fmt.Errorf("the comment is longer than %d bytes", maxComment)
	}
	return nil
}
