package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A Feature is a feature of the kernel that rules need.
type Feature struct {
	// Name describes the feature.
	Name string
	// Option is the kernel's configuration option and module. Since is the first kernel version
	// that supports the feature in inet tables, according to the kernel's documentation and
	// history.
	Option, Since string
}

// The features that some or all rulesets need.
var (
	FeatureNetlink = Feature{
		"netfilter's netlink interface", "CONFIG_NETFILTER_NETLINK, module nfnetlink", "2.6.14",
	}
	FeatureTables = Feature{
		"nf_tables with inet tables", "CONFIG_NF_TABLES_INET, module nf_tables", "3.14",
	}
	FeatureNAT      = Feature{"NAT in inet tables", "CONFIG_NFT_NAT, module nft_chain_nat", "5.2"}
	FeatureRedirect = Feature{
		"redirect to a local port", "CONFIG_NFT_REDIR, module nft_redir", "5.2",
	}
	FeatureOwner = Feature{
		"match of the socket's user and group", "CONFIG_NF_TABLES, module nf_tables", "3.14",
	}
	FeatureInterval = Feature{
		"sets of address ranges", "CONFIG_NF_TABLES, module nf_tables", "3.14",
	}
	FeatureZone = Feature{
		"conntrack states and zones (DNS capture, TPROXY)", "CONFIG_NFT_CT, module nft_ct", "4.11",
	}
	FeatureRoute = Feature{
		"rerouting of marked packets (TPROXY)", "CONFIG_NF_TABLES_INET, module nf_tables", "5.2",
	}
	FeatureTProxy = Feature{
		"transparent proxying (TPROXY)", "CONFIG_NFT_TPROXY, module nft_tproxy", "4.19",
	}
)

// IsNeededBy reports whether the ruleset needs the feature. It returns true for the features that
// almost all rulesets need.
func (f Feature) IsNeededBy(rs *rules.Ruleset) bool {
	switch f {
	case FeatureTProxy:
		return anyRule(rs, func(r *rules.Rule) bool { return hasType[rules.TProxy](r.Actions) })
	case FeatureZone:
		return anyRule(rs, func(r *rules.Rule) bool {
			return hasType[rules.SetZone](r.Actions) || hasType[rules.MatchState](r.Matches)
		})
	case FeatureRoute:
		for _, c := range rs.AllChains() {
			if c.Base != nil && c.Base.Type == rules.Route {
				return true
			}
		}
		return false
	case FeatureInterval:
		return slices.ContainsFunc(rs.Tables, func(t rules.Table) bool { return len(t.Sets()) > 0 })
	}
	return true
}

// anyRule reports whether matches returns true for a rule of the ruleset.
func anyRule(rs *rules.Ruleset, matches func(*rules.Rule) bool) bool {
	for _, r := range rs.AllRules() {
		if matches(r) {
			return true
		}
	}
	return false
}

// hasType reports whether one of the values has type T.
func hasType[T, V any](values []V) bool {
	for _, v := range values {
		if _, ok := any(v).(T); ok {
			return true
		}
	}
	return false
}

// An UnsupportedError reports that the kernel lacks a feature.
type UnsupportedError struct {
	Feature Feature
	Err     error // the kernel's error
}

// Error names the feature, the kernel's option and the first version that supports it.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("this kernel does not support %s (%s, Linux %s or later): %v",
		e.Feature.Name, e.Feature.Option, e.Feature.Since, e.Err)
}

// Unwrap returns the kernel's error.
func (e *UnsupportedError) Unwrap() error { return e.Err }

// Support reports whether the kernel supports a feature: Err is nil, or an UnsupportedError.
type Support struct {
	Feature Feature
	Err     error
}

// Probe detects the features of the kernel in a temporary namespace. It needs CAP_SYS_ADMIN and
// CAP_NET_ADMIN. Without them [IsNotPermitted] reports true for the error, and only Apply can
// detect a missing feature. The kernel loads the modules of the features on demand. Probe caches
// the result for the life of the process, and does not detect modules that are installed later. It
// does not cache errors of the probe itself, such as missing memory.
func Probe() ([]Support, error) {
	probeCache.Lock()
	defer probeCache.Unlock()
	if probeCache.features != nil {
		return probeCache.features, nil
	}
	ns, err := netns.New()
	if err != nil {
		return nil, fmt.Errorf("probe the kernel's features: %w", err)
	}
	defer func() { _ = ns.Close() }()
	var features []Support
	err = ns.Do(func() (err error) {
		features, err = probe()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("probe the kernel's features: %w", err)
	}
	probeCache.features = features
	return features, nil
}

var probeCache struct {
	sync.Mutex
	features []Support
}

// probe is Probe in the namespace of the thread.
func probe() ([]Support, error) {
	c, err := dial()
	if IsNotSupported(err) {
		return []Support{{FeatureNetlink, err}}, nil
	}
	if err != nil {
		return nil, err
	}
	defer c.close()
	return c.probe()
}

// probe sends a table for each feature to the kernel, in one transaction that cannot succeed.
func (c *conn) probe() ([]Support, error) {
	support := []Support{{Feature: FeatureNetlink}}
	e := newEncoder(anyGeneration)
	var featureOf []int // the index in support for each message
	for _, p := range probes() {
		t := p.table(len(support))
		if err := e.writeTable(&t); err != nil {
			return nil, err
		}
		for len(featureOf) < len(e.descriptions) {
			featureOf = append(featureOf, len(support))
		}
		support = append(support, Support{Feature: p.feature})
	}
	e.deleteTable(&rules.Table{Name: "no-such-table"}) // the message that must fail
	rejections, err := c.tryTransaction(e.transaction())
	if err != nil {
		return nil, err
	}
	for _, r := range rejections {
		if IsNotPermitted(r.errno) || isTransient(r.errno) {
			return nil, r.errno
		}
		for i := range support {
			// Without nf_tables the kernel rejects the first message of the batch.
			isAffected := r.message == 0 && i > 0 ||
				r.message < len(featureOf) && i == featureOf[r.message]
			if s := &support[i]; isAffected && s.Err == nil {
				s.Err = &UnsupportedError{Feature: s.Feature, Err: r.errno}
			}
		}
	}
	return support, nil
}

// A rejection is the kernel's error for a message of a transaction.
type rejection struct {
	message int // the index of the message
	errno   unix.Errno
}

// tryTransaction sends a transaction whose last message must fail, so that nothing is committed,
// and returns all rejections except the last.
func (c *conn) tryTransaction(t *Transaction) ([]rejection, error) {
	if err := c.send(t.buf); err != nil {
		return nil, err
	}
	var rejections []rejection
	for {
		done, err := c.receive(0, func(m nlmsg.Message) (bool, error) {
			if m.Type != unix.NLMSG_ERROR {
				return false, nil
			}
			s, err := m.Status()
			if err != nil {
				return false, err
			}
			if m.Sequence == t.lastSequence() {
				return true, nil
			}
			rejections = append(rejections, rejection{int(m.Sequence), s.Errno})
			// Without nf_tables or the capability, the kernel rejects the first message and ignores
			// the rest of the batch.
			return m.Sequence == 0, nil
		})
		if done || err != nil {
			return rejections, err
		}
	}
}

// A featureProbe is a base chain that needs a feature. It is empty, or has one rule.
type featureProbe struct {
	feature Feature
	base    rules.Base
	match   rules.Match
	action  rules.Action // nil if the chain is empty
}

// table returns the table with the chain. number makes its name unique.
func (p featureProbe) table(number int) rules.Table {
	c := rules.Chain{Name: "probe", Base: &p.base}
	if p.action != nil {
		c.Rules = []rules.Rule{
			{Matches: []rules.Match{p.match}, Actions: []rules.Action{p.action}},
		}
	}
	return rules.Table{
		Family: rules.Inet, Name: fmt.Sprintf("probe-%d", number), Chains: []rules.Chain{c},
	}
}

// probes returns one probe for each feature except netlink itself.
func probes() []featureProbe {
	at := func(t rules.ChainType, h rules.Hook, priority int) rules.Base {
		return rules.Base{Type: t, Hook: h, Priority: priority}
	}
	filter, nat := at(rules.Filter, rules.Output, 0), at(rules.NAT, rules.Output, 0)
	tcp := rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}}
	proxy := rules.MatchOwner{IDs: rules.Singles[uint32](rules.DefaultProxyID)}
	private := rules.MatchAddr{Side: rules.Destination, Ranges: rules.AddrRanges([]netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.168.0.0/16"),
	})}
	return []featureProbe{
		{FeatureTables, filter, nil, nil},
		{FeatureNAT, nat, nil, nil},
		{FeatureRedirect, nat, tcp, rules.RedirectTo{Port: rules.DefaultProxyPort}},
		{FeatureOwner, filter, proxy, rules.Return},
		{FeatureInterval, filter, private, rules.Return},
		{
			FeatureZone, at(rules.Filter, rules.Prerouting, rules.RawPriority),
			rules.MatchState{States: rules.States(rules.New)},
			rules.SetZone{Zone: rules.ProxyDNSZone},
		},
		{FeatureRoute, at(rules.Route, rules.Output, rules.ManglePriority), nil, nil},
		{
			FeatureTProxy, at(rules.Filter, rules.Prerouting, rules.ManglePriority),
			tcp,
			rules.TProxy{Port: rules.DefaultInboundCapturePort},
		},
	}
}

// diagnose adds the features that the ruleset needs and that the kernel lacks to the error of a
// rejected transaction, if Probe can detect them.
func diagnose(err error, rs *rules.Ruleset) error {
	var kernelErr *KernelError
	if !errors.As(err, &kernelErr) || needsRetry(err) || IsNotPermitted(err) ||
		isTransient(kernelErr.Errno) {
		return err
	}
	features, probeErr := Probe()
	if probeErr != nil {
		return err
	}
	for _, s := range features {
		if s.Err != nil && s.Feature.IsNeededBy(rs) {
			err = errors.Join(err, s.Err)
		}
	}
	return err
}

// isTransient reports whether the kernel rejected a message for a temporary reason, such as missing
// memory, which does not show whether it supports a feature.
func isTransient(errno unix.Errno) bool {
	return errno == unix.ENOMEM || errno == unix.ENOBUFS || errno == unix.EAGAIN ||
		errno == unix.EINTR
}
