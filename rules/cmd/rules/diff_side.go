package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/nftlist"
	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A diffSide is one of the two rulesets that diff compares, with facts about its source.
type diffSide struct {
	diff.Side
	name   string       // the name of the side in messages
	family rules.Family // the family of its rules; Inet for both
	// texts contains the sources of the rules, by family. The field Line of a rule is the number of
	// its line in the source.
	texts map[rules.Family]sourceText
	// undecided lists unknown facts about the whole side that may affect packets.
	undecided []string
	// unmodeledChains contains chains at hooks that are not compared, such as the ingress hook of
	// a device.
	unmodeledChains []string
	// unmodeledRoutes contains the policy rules that are not evaluated.
	unmodeledRoutes []string
	// unstated contains the parameters that the log does not contain.
	unstated []string
	// isGuess reports that the rules may differ from the rules in the kernel: the order of some
	// chains is one of several possible orders, or a listing lacks information.
	isGuess bool
	// notes contains facts about the side that a reader should know.
	notes []string
	// logRedirect is the redirection in a log, or nil. logRedirectErr is the reason why it is nil.
	logRedirect    *rules.Redirect
	logRedirectErr error
}

// meetsFragments reports whether rules of the side may see fragments of packets.
func (side *diffSide) meetsFragments() bool {
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		hasFamily := side.family == rules.Inet || side.family == f
		if hasFamily && diff.MeetsFragments(&side.Ruleset, f) {
			return true
		}
	}
	return false
}

// sourceText is a file of rules.
type sourceText struct {
	name string
	text []byte
}

// line returns the line with the number, without leading and trailing blanks. It returns false if
// there is no such line. The text has no index of its lines, because an index would need more
// memory than a text of short lines.
func (t sourceText) line(number rules.Line) (string, bool) {
	n := rules.Line(0)
	for line := range bytes.Lines(t.text) {
		if n++; n == number {
			return string(bytes.TrimSpace(line)), true
		}
	}
	return "", false
}

// load loads one side. otherSource is the source of the other side. other is the other side if it
// has already been loaded, or nil.
func (s *system) load(
	p *parameters, from, otherSource spec, other *diffSide,
) (*diffSide, error) {
	switch from.kind {
	case kindSave:
		return s.loadSave(from.paths)
	case kindLog:
		return s.loadLog(from.paths[0])
	case kindNFT:
		return s.loadListing(from.paths[0])
	case kindNamespace:
		return s.loadNamespace(p, from)
	case kindLogged:
		return loggedSide(other)
	}
	// If the other side is a namespace, the flags describe the pod of this namespace.
	if otherSource.kind == kindNamespace && otherSource.paths[0] != "" {
		p = &parameters{netnsPath: otherSource.paths[0]}
	}
	return s.loadFlags(p, from.parameters, other)
}

// loadFlags compiles parameters. Missing facts about the pod are taken from the log of the other
// side, or else from the namespace that location names. If location names no namespace, the
// defaults of rules show apply.
func (s *system) loadFlags(location, p *parameters, other *diffSide) (*diffSide, error) {
	name := cmp.Or(p.sideName, "command-line flags")
	if p.located != nil {
		name = fmt.Sprintf("the desired ruleset of pod %s", p.pod)
	}
	switch {
	case p.AmbientMode:
		return ambientSide(name, p.AmbientRedirect())
	case p.located != nil:
		return compiledSide(name, p.Redirect)
	}
	if other != nil && other.logRedirect != nil {
		p.setFromLog(*other.logRedirect)
	}
	if !location.namesNamespace() {
		p.assumePod()
	}
	var redirect rules.Redirect
	err := location.inNamespace(func(ns *netns.NS) (err error) {
		redirect, err = s.complete(p, ns)
		return err
	})
	if err != nil {
		return nil, err
	}
	return compiledSide(name, redirect)
}

// ambientSide returns the side with the rules of a pod in ambient mode.
func ambientSide(name string, a rules.Ambient) (*diffSide, error) {
	rs, err := rules.CompileAmbient(a)
	side := diff.Side{Ruleset: rs, RoutingKnown: true, Ambient: &a}
	return &diffSide{name: name, Side: side}, err
}

// compiledSide returns the side with the rules of a redirection.
func compiledSide(name string, r rules.Redirect) (*diffSide, error) {
	rs, err := rules.Compile(r)
	if err != nil {
		return nil, err
	}
	side := diff.Side{Ruleset: rs, RoutingKnown: true, Redirect: &r}
	compiled := &diffSide{name: name, Side: side}
	if r.CapturesNothing() {
		compiled.notes = append(compiled.notes,
			"these parameters capture nothing: are the flags of the pod missing?")
	}
	return compiled, nil
}

// setFromLog sets properties of the pod from a log, unless the parameters set them.
func (p *parameters) setFromLog(logged rules.Redirect) {
	if len(p.PodIPs) == 0 {
		p.DualStack = p.DualStack || logged.IPv6
		p.assumePod()
	}
	if len(p.Redirect.DNS.Servers) == 0 {
		p.Redirect.DNS.Servers = logged.DNS.Servers
	}
}

// loggedSide returns the side for the configuration in the other side's log.
func loggedSide(other *diffSide) (*diffSide, error) {
	if other.logRedirect == nil {
		return nil, fmt.Errorf("%s does not contain the parameters of istio-init, "+
			"so they are needed as flags: %w", other.name, other.logRedirectErr)
	}
	return compiledSide("the configuration in "+other.name, *other.logRedirect)
}

// loadSave loads the files of one or both families.
func (s *system) loadSave(paths [2]string) (*diffSide, error) {
	side := &diffSide{texts: map[rules.Family]sourceText{}}
	side.family = spec{kind: kindSave, paths: paths}.family()
	var names []string
	var faults []error
	for i, family := range []rules.Family{rules.IPv4, rules.IPv6} {
		if paths[i] == "" {
			continue
		}
		name := sourceName(paths[i])
		names = append(names, name)
		text, err := s.readFile(paths[i])
		if err != nil {
			faults = append(faults, err)
			continue
		}
		tables, err := save.Parse(family, name, bytes.NewReader(text))
		faults = append(faults, err)
		side.Ruleset.Tables = append(side.Ruleset.Tables, tables...)
		side.texts[family] = sourceText{name, text}
	}
	side.name = strings.Join(names, ", ")
	return side, errors.Join(faults...)
}

// loadLog loads the log of an istio-init container.
func (s *system) loadLog(path string) (*diffSide, error) {
	text, err := s.readFile(path)
	if err != nil {
		return nil, err
	}
	log, err := save.ParseIstioLog(sourceName(path), bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	source := sourceText{sourceName(path), text}
	side := &diffSide{
		name: sourceName(path), Side: diff.Side{Ruleset: rules.Ruleset{Tables: log.Tables}},
		logRedirect:    log.Redirect,
		logRedirectErr: log.NoRedirect,
		unstated:       log.Unstated,
		texts:          map[rules.Family]sourceText{rules.IPv4: source, rules.IPv6: source},
	}
	if log.DryRun {
		side.notes = append(side.notes, "a dry run: the rules that it would have programmed")
	}
	if log.FromInput && !log.DryRun {
		side.notes = append(side.notes,
			"the log has no final state: the rules that iptables-restore was given")
	}
	if log.Failure != "" {
		reason, _, _ := strings.Cut(log.Failure, "\n")
		side.notes = append(side.notes, "the run failed: "+reason)
	}
	return side, nil
}

// loadListing reads the output of nft list ruleset, as text or as JSON.
func (s *system) loadListing(path string) (*diffSide, error) {
	text, err := s.readFile(path)
	if err != nil {
		return nil, err
	}
	listing, err := nftlist.Parse(sourceName(path), bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	side := &diffSide{
		name: sourceName(path), undecided: listing.Undecided, isGuess: len(listing.Undecided) > 0,
		unmodeledChains: listing.UnmodeledChains, texts: map[rules.Family]sourceText{},
	}
	source := sourceText{sourceName(path), text}
	for _, family := range []rules.Family{rules.IPv4, rules.IPv6, rules.Inet} {
		side.texts[family] = source
	}
	side.Ruleset.Tables = listing.Tables
	return side, nil
}

// readFile reads a text of at most maxInput bytes from a file, or from standard input. A text that
// begins with a byte order mark, as Windows programs write it, is converted to UTF-8 without the
// mark.
func (s *system) readFile(path string) ([]byte, error) {
	file, err := s.open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text := transform.NewReader(file, unicode.BOMOverride(transform.Nop))
	return readAtMost(text, sourceName(path), maxInput())
}

// loadNamespace loads the kernel's rules.
func (s *system) loadNamespace(p *parameters, from spec) (*diffSide, error) {
	side := &diffSide{}
	read := func(ns *netns.NS) error {
		side.name = ns.String()
		if from.origin != compat.OriginAll {
			side.name += ", " + string(from.origin)
		}
		live, err := compat.ReadLive(ns, from.origin)
		side.Ruleset, side.RoutingKnown = live.Ruleset, true
		side.isGuess = len(live.Ambiguous) > 0
		for _, a := range live.Ambiguous {
			side.undecided = append(side.undecided, a.String())
		}
		side.unmodeledChains = live.UnmodeledChains
		side.unmodeledRoutes = live.UnmodeledRoutes
		side.undecided = append(side.undecided, live.UndecidedEffects()...)
		return systemError(err)
	}
	if from.paths[0] == "" {
		return side, p.inNamespace(read)
	}
	location := parameters{netnsPath: from.paths[0]}
	return side, location.inNamespace(read)
}

// commonFamilies returns the families that both sides contain. newDiffCommand rejects sides without
// a common family.
func commonFamilies(left, right *diffSide) []rules.Family {
	switch cmp.Or(left.family, right.family) { // Inet, which means both families, is zero
	case rules.IPv4:
		return []rules.Family{rules.IPv4}
	case rules.IPv6:
		return []rules.Family{rules.IPv6}
	}
	return []rules.Family{rules.IPv4, rules.IPv6}
}

// decidedBy describes the rule, or else the reason, that determined the outcome.
func (side *diffSide) decidedBy(o diff.SideOutcome) string {
	if o.Decided == nil {
		return o.Reason
	}
	return side.locate(o.Decided)
}

// locate returns the position and the text of the rule of a step: its line in the source, or else
// its chain with its handle or number.
func (side *diffSide) locate(step *rules.Step) string {
	if step.Chain == nil {
		return "not a rule"
	}
	rule := step.Rule()
	text := side.texts[step.Table.Family]
	if line, ok := text.line(rule.Line); ok {
		return fmt.Sprintf("%s:%d: %s", text.name, rule.Line, shorten(line))
	}
	where := chainName(step.ChainRef)
	if rule.Handle != 0 {
		where += fmt.Sprintf(" handle %d", rule.Handle)
	} else {
		where += fmt.Sprintf(" rule %d", step.Number())
	}
	return where + ": " + stepText(*step)
}
