package audit

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/doctor"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// Open opens a sandbox of this machine.
func Open(s sandbox.Sandbox) (Namespace, error) {
	ns, err := s.Open()
	if err != nil {
		return nil, err
	}
	return namespace{ns}, nil
}

// Used is how much time of processors this process has used.
func Used() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r) // never fails
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// namespace is one of the kernel's.
type namespace struct{ ns *netns.NS }

func (n namespace) NS() *netns.NS                    { return n.ns }
func (n namespace) Close() error                     { return n.ns.Close() }
func (n namespace) Addresses() ([]netip.Addr, error) { return route.Addresses(n.ns) }

func (n namespace) Check(e compat.Engine, rs rules.Ruleset) (compat.Comparison, error) {
	b, err := compat.Choose(e)
	if err != nil {
		return compat.Comparison{}, err
	}
	return b.Check(n.ns, rs)
}

func (n namespace) Recheck(last compat.Comparison, rs rules.Ruleset) (compat.Comparison, error) {
	b, err := compat.Choose(last.Engine)
	if err != nil {
		return compat.Comparison{}, err
	}
	return b.Recheck(n.ns, rs, last)
}

func (n namespace) Mend(e compat.Engine, rs rules.Ruleset, found compat.Comparison) (compat.Result, error) {
	b, err := compat.Choose(e)
	if err != nil {
		return compat.Result{}, err
	}
	return b.Mend(n.ns, rs, found)
}

// Bare implements Namespace. A kernel without an engine has no rules in it.
func (n namespace) Bare() (bool, error) {
	for _, b := range compat.Backends() {
		found, err := b.Read(n.ns)
		if compat.IsNotSupported(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		for _, t := range found.Tables {
			if slices.ContainsFunc(t.Chains, func(c rules.Chain) bool { return len(c.Rules) > 0 }) {
				return false, nil
			}
		}
	}
	return true, nil
}

// Ahead implements Namespace. What cannot be read is not known to be in the way.
func (n namespace) Ahead(e compat.Engine, r rules.Redirect) []string {
	facts := doctor.Gather(n.ns)
	facts.Engine = string(e)
	var ahead []string
	for _, f := range doctor.Judge(facts, r) {
		if f.Topic == "rules" && (f.Severity == doctor.Problem || f.Severity == doctor.Warning) {
			ahead = append(ahead, f.Verdict)
		}
	}
	return ahead
}

// Istio implements Namespace.
func (n namespace) Istio() ([]string, error) {
	inNFT, err := nft.FindIstio(n.ns)
	if nft.IsNotSupported(err) {
		err = nil
	}
	inLegacy, legacyErr := compat.FindIstio(n.ns)
	if compat.IsNotSupported(legacyErr) {
		legacyErr = nil
	}
	return slices.Concat(inNFT, inLegacy), errors.Join(err, legacyErr)
}
