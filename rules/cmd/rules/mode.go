package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A mode is the data plane mode of Istio to which a parameter applies.
type mode uint8

const (
	modeAny     mode = iota
	modeSidecar      // without --ambient
	modeAmbient      // with --ambient
)

// ambientFlag selects ambient mode.
const ambientFlag = "ambient"

// otherMode returns the mode that the command line does not select.
func (in *inputs) otherMode() mode {
	if texts := in.given[ambientFlag]; len(texts) > 0 {
		if ambient, err := rules.ParseBool(texts[len(texts)-1]); err == nil && ambient {
			return modeSidecar
		}
	}
	return modeAmbient
}

// modeFaults returns one error for all flags of the mode that is not selected.
func (in *inputs) modeFaults() []error {
	other := in.otherMode()
	var wrong, allowed []string
	for i := range in.parameters {
		p := &in.parameters[i]
		if p.flag == "" || p.flag == ambientFlag {
			continue
		}
		isSet := len(in.given[p.flag]) > 0
		switch {
		case isSet && p.mode == other:
			wrong = append(wrong, flagName(p))
		case p.mode != other && slices.Contains(captureSections, p.section):
			allowed = append(allowed, flagName(p))
		}
	}
	flags := strings.Join(wrong, ", ")
	switch {
	case len(wrong) == 0:
		return nil
	case other == modeSidecar && len(allowed) == 0:
		return []error{fmt.Errorf(
			"%s: only for the redirection to a sidecar, not with --ambient", flags)}
	case other == modeSidecar:
		return []error{fmt.Errorf(
			"%s: only for the redirection to a sidecar; --ambient allows %s",
			flags, strings.Join(allowed, ", "))}
	}
	return []error{fmt.Errorf("%s: only for ambient mode; add --ambient", flags)}
}

// ruleset returns the ruleset of parameters that [system.complete] or the node agent has completed.
func (p *parameters) ruleset() (rules.Ruleset, error) {
	switch {
	case p.host != nil:
		return rules.CompileAmbientHost(p.host.Parameters)
	case p.AmbientMode:
		return rules.CompileAmbient(p.AmbientRedirect())
	}
	return rules.Compile(p.Redirect)
}

// desiredRuleset returns the ruleset of the parameters for the pod in the namespace, and the
// redirection to the sidecar, which is nil in ambient mode and for the node.
func (s *system) desiredRuleset(
	p *parameters, ns *netns.NS,
) (rules.Ruleset, *rules.Redirect, error) {
	if p.AmbientMode || p.host != nil {
		rs, err := p.ruleset()
		return rs, nil, err
	}
	redirect, err := s.complete(p, ns)
	if err != nil {
		return rules.Ruleset{}, nil, err
	}
	rs, err := rules.Compile(redirect)
	return rs, &redirect, err
}
