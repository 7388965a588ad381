package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

const applyHelp = `Put the redirection into a network namespace: routes, and one nftables transaction. Nothing is done if it is there
already; another one of ours is replaced without a gap. No process is executed.

The flags and variables are those of istio-iptables, so that the arguments of an istio-init or istio-validation container
work unchanged ("rules istio-iptables ..." is the same as "rules apply ..."). A flag outranks its variables, and a later
variable the earlier. All bad inputs are reported, and then nothing is done.`

const applyExamples = `  rules apply -p 15001 -z 15006 -u 1337 -m REDIRECT -i '*' -x "" -b '*' -d 15090,15021,15020
  rules apply --netns /run/netns/pod -b '*' -i 10.0.0.0/8 --redirect-dns --nameserver 10.96.0.10
  rules apply --pid 4711 -b '*' -i '*' --dual-stack --dry-run`

func newApplyCommand(s *system) *cobra.Command {
	in := &inputs{sections: ofCapture(sectionNamespace, sectionDryRun, sectionAction, sectionProbe, sectionOutput, sectionIgnored)}
	cmd := &cobra.Command{
		Use:     "apply [FLAG]...",
		Aliases: []string{"istio-iptables"},
		Short:   "put the redirection into a network namespace",
		Long:    applyHelp,
		Example: applyExamples,
	}
	return s.command(cmd, in, func(p *parameters, _ []string) error {
		return p.inNamespace(func(ns *netns.NS) error { return apply(s, ns, p) })
	})
}

func apply(s *system, ns *netns.NS, p *parameters) error {
	if p.cleanupOnly {
		return cleanup(s, ns, p)
	}
	redirect, err := s.complete(p, ns)
	if err != nil {
		return err
	}
	switch {
	case p.skipApply && p.runValidation:
	case p.skipApply:
		return s.print("rules left alone (--skip-rule-apply)\n", applied{Outcome: "skipped", Namespace: ns.String()})
	case p.dryRun:
		if err := s.besideIstio(ns, redirect.Mode); err != nil {
			s.warn("apply would be refused: %v", err)
		}
		return s.dryRun(ns, rules.Compile(redirect))
	default:
		if err := s.besideIstio(ns, redirect.Mode); err != nil {
			return refused(err)
		}
		if err := s.program(ns, redirect); err != nil {
			return err
		}
	}
	if !p.runValidation || p.dryRun {
		return nil
	}
	if s.validate == nil {
		return refused(errors.New("--run-validation: this program was built without validation"))
	}
	return s.validate(s, validation{namespace: ns, redirect: redirect, podIPs: p.podIPs, port: p.probePort, timeout: p.probeTimeout})
}

// validation is what --run-validation asks for.
type validation struct {
	namespace *netns.NS
	redirect  rules.Redirect
	podIPs    []netip.Addr
	port      uint16 // the probe's
	timeout   time.Duration
}

// applied is what apply has done.
type applied struct {
	Outcome      string  `json:"outcome"`
	Namespace    string  `json:"namespace"`
	Rules        int     `json:"rules"`
	Sets         int     `json:"sets"`
	Elements     int     `json:"elements"`
	Routes       int     `json:"routes"`
	Bytes        int     `json:"bytes"`
	Kept         *uint64 `json:"kept,omitempty"`
	Milliseconds float64 `json:"milliseconds"`
}

// besideIstio looks for what Istio's own programs have left in the namespace. In TPROXY mode it returns why that forbids to apply, in the
// other it warns. What a missing permission or the kernel hides is no hindrance.
func (s *system) besideIstio(ns *netns.NS, mode rules.Mode) error {
	tables, err := nft.FindIstio(ns)
	legacy, legacyErr := compat.FindIstio(ns)
	for _, err := range []error{err, legacyErr} {
		if err != nil && !nft.IsNotPermitted(err) && !nft.IsNotSupported(err) && !errors.Is(err, unix.ENOPROTOOPT) {
			s.warn("whether Istio's own rules are here is not known: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	found := slices.Concat(tables, legacy)
	if len(found) == 0 {
		return nil
	}
	const some = 3
	text := strings.Join(found[:min(some, len(found))], "; ")
	if more := len(found) - some; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	if mode == rules.ModeTProxy {
		return fmt.Errorf("%s holds rules of Istio's own, beside which TPROXY's inbound connections would get no answer (%s): "+
			"remove them with rules cleanup --istio", ns, text)
	}
	s.warn("%s holds rules of Istio's own, so that two programs capture here (%s): rules cleanup --istio removes them", ns, text)
	return nil
}

func (s *system) program(ns *netns.NS, redirect rules.Redirect) error {
	start := time.Now()
	result, err := nft.Apply(ns, rules.Compile(redirect))
	if err != nil {
		return refused(err)
	}
	a := applied{
		Outcome: string(result.Outcome), Namespace: ns.String(),
		Rules: result.Rules, Sets: result.Sets, Elements: result.Elements, Routes: result.Routes, Bytes: result.Bytes,
		Milliseconds: float64(time.Since(start).Microseconds()) / 1000,
	}
	text := a.text()
	if redirect.KeepEstablished {
		a.Kept = &result.Kept
		text += keptText(result.Kept, redirect.Mode)
	}
	return s.print(text, a)
}

func (a applied) text() string {
	text := fmt.Sprintf("%s in %s: %s", a.Outcome, a.Namespace, count(a.Rules, "rule"))
	for _, part := range []struct {
		n    int
		noun string
	}{{a.Sets, "set"}, {a.Elements, "element"}, {a.Routes, "routing change"}, {a.Bytes, "byte"}} {
		if part.n > 0 {
			text += ", " + count(part.n, part.noun)
		}
	}
	return text + fmt.Sprintf(", %.1f ms\n", a.Milliseconds)
}

// keptText says what the count of nft.Result.Kept means.
func keptText(packets uint64, mode rules.Mode) string {
	what := "one for each connection that conntrack did not know"
	if mode == rules.ModeTProxy {
		what = "of connections that conntrack did not know: of each outbound one the first, of an inbound one all until the application answers"
	}
	return fmt.Sprintf("let past the proxy until now, as older than the rules: %s (%s); connections that it knew go on uncounted\n",
		count(int(packets), "packet"), what)
}

// planned is what apply would do.
type planned struct {
	Outcome     string      `json:"outcome"` // "dry-run"
	Would       string      `json:"would"`   // the outcome without it
	Namespace   string      `json:"namespace"`
	Ruleset     jsonRuleset `json:"ruleset"`
	Transaction []string    `json:"transaction"` // a line for each message
	Bytes       int         `json:"bytes"`
}

// dryRun shows the ruleset and what apply would send to make it of what the namespace holds.
func (s *system) dryRun(ns *netns.NS, ruleset rules.Ruleset) error {
	outcome, transaction, err := nft.Plan(ns, ruleset)
	if nft.IsNotPermitted(err) || nft.IsNotSupported(err) {
		s.warn("what %s holds cannot be read, so this is for an empty one: %s", ns, strings.ReplaceAll(err.Error(), "\n", "; "))
		outcome = nft.Created
		transaction, err = nft.Encode(ruleset)
	}
	if err != nil {
		return refused(err)
	}
	plan := planned{Outcome: "dry-run", Would: string(outcome), Namespace: ns.String(), Ruleset: toJSON(ruleset), Transaction: []string{}}
	text := fmt.Sprintf("%s\nunchanged in %s (dry run: nothing is sent)\n", ruleset, ns)
	if transaction != nil {
		messages := transaction.String()
		plan.Transaction, plan.Bytes = strings.Split(strings.TrimRight(messages, "\n"), "\n"), len(transaction.Bytes())
		text = fmt.Sprintf("%s\ntransaction for %s, %s (dry run: nothing is sent), the rules would be %s:\n%s",
			ruleset, ns, count(plan.Bytes, "byte"), outcome, messages)
	}
	return s.print(strings.TrimRight(text, "\n")+"\n", plan)
}
