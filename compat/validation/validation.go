package validation

import (
	"cmp"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/rules"
)

// Istio's defaults (tools/istio-iptables/pkg/constants: --iptables-probe-port, --probe-timeout).
const (
	DefaultPort    = 15002
	DefaultTimeout = 5 * time.Second
)

// Options say what to validate.
type Options struct {
	// Redirect are the parameters, which must be valid.
	Redirect rules.Redirect
	// PodIPs are the pod's addresses; without any, those of the namespace's interfaces.
	PodIPs []netip.Addr
	// Port is the one that probes connect to where the parameters do not ask for another; 0 for
	// DefaultPort.
	Port uint16
	// Timeout is how long failing checks are tried again, since rules may still be on their way; 0
	// for DefaultTimeout.
	Timeout time.Duration
	// Backend is the one that has the rules; empty for [compat.BackendAuto].
	Backend compat.BackendName
	// Progress, if not nil, is called with the result of an attempt before another one, and the
	// time that is left for more.
	Progress func(r Result, left time.Duration) `json:"-"`
}

// The first attempt waits a tenth of a second for its probes, of which a captured one arrives
// within a millisecond, and each further one twice as long, in case the host is busy.
//
// Two attempts begin at least a twentieth of a second after each other, and this time, too, is
// doubled, up to half a second.
const (
	firstWait  = 100 * time.Millisecond
	firstPause = 50 * time.Millisecond
	maxPause   = 500 * time.Millisecond
)

// Run tries whether the namespace (nil: the current one) captures what the parameters say, until
// nothing fails any more or the time is over. Outside of the namespace is where the caller is. The
// error reports that nothing could be tried at all; what was tried and failed is in the result.
func Run(ns *netns.NS, o Options) (Result, error) {
	wanted, err := rules.Compile(o.Redirect)
	if err != nil {
		return Result{}, fmt.Errorf("validate: %w", err)
	}
	o.Port = cmp.Or(o.Port, DefaultPort)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	backend, err := compat.Choose(cmp.Or(o.Backend, compat.BackendAuto))
	if err != nil {
		return Result{}, fmt.Errorf("validate: %w", err)
	}
	v := &validator{ns: ns, options: o, backend: backend, wanted: wanted, proved: map[string]Check{}}
	defer v.close()
	if err := v.open(); err != nil {
		return Result{}, fmt.Errorf("validate: %w", err)
	}
	var r Result
	start := time.Now()
	for wait, pause := firstWait, firstPause; ; wait, pause = 2*wait, min(2*pause, maxPause) {
		r.Attempts++
		next := time.Now().Add(pause)
		r.Checks, r.Empty = v.attempt(min(wait, o.Timeout-time.Since(start)))
		r.Running, r.Duration = v.running, time.Since(start)
		// What is left must be enough to see that something works.
		if r.Count(Failed) == 0 || o.Timeout-time.Since(start) < firstWait+pause {
			break
		}
		if o.Progress != nil {
			o.Progress(r, o.Timeout-time.Since(start))
		}
		time.Sleep(time.Until(next))
	}
	return v.explained(r), nil
}

// validator is one call of Run.
type validator struct {
	ns      *netns.NS
	here    *netns.NS // where the caller is
	options Options
	backend compat.Backend
	wanted  rules.Ruleset // what the parameters compile to
	owners  *owners
	pod     *network
	around  *network // of here; nil if that is the same namespace
	// proved are the probes' checks that an earlier attempt has found in order: they are not tried
	// again.
	proved map[string]Check
	// running reports that a proxy listens, transparent that this process may do so transparently.
	running, transparent bool
}

// open finds out what does not change from one attempt to the next.
func (v *validator) open() (err error) {
	if here, err := netns.Open("/proc/thread-self/ns/net"); err == nil {
		v.here = here
	}
	if v.ns == nil {
		// Goroutines of a caller inside NS.Do are not where the caller is.
		v.ns = v.here
	}
	if v.pod, err = openNetwork(v.ns); err != nil {
		return err
	}
	if v.here.ID() != v.ns.ID() {
		if v.around, err = openNetwork(v.here); err != nil {
			return err
		}
	}
	v.owners = newOwners(v.ns)
	if len(v.options.PodIPs) == 0 {
		v.options.PodIPs, err = route.Addresses(v.ns)
	}
	return err
}

func (v *validator) close() {
	if v.pod != nil {
		v.pod.close()
	}
	if v.around != nil {
		v.around.close()
	}
	_ = v.here.Close()
}

// attempt tries everything once and waits that long for what has been sent.
func (v *validator) attempt(wait time.Duration) (checks []Check, empty bool) {
	// Where the kernel does not list sockets, a listener of the proxy's shows when ours cannot be
	// opened.
	list, _ := sockets(v.ns)
	v.running, v.transparent = v.proxyListens(list), mayBeTransparent(v.ns)
	probes, captures := plan(v.options, v.wanted, v.surroundings())

	for i := range probes {
		if c, ok := v.proved[probes[i].Name]; ok {
			probes[i].Check = c
		}
	}
	var l listeners
	v.listen(&l, probes)
	observations := make([]observation, len(probes))
	var wg sync.WaitGroup
	deadline := time.Now().Add(wait)
	for i := range probes {
		if probes[i].Status == "" {
			wg.Go(func() { observations[i] = v.try(&l, &probes[i], deadline) })
		}
	}
	wg.Wait()
	l.close()
	back := v.readBack()
	for i := range probes {
		c := probes[i].judge(observations[i], back.Status == OK)
		if c.Status == OK {
			v.proved[c.Name] = c
		}
		checks = append(checks, c)
	}
	return append(append(checks, v.sourceCheck()...), back), !captures
}

// surroundings are those of this attempt.
func (v *validator) surroundings() surroundings {
	return surroundings{
		self: v.owners.self, can: v.owners.can,
		route: v.pod.route, device: v.pod.device,
		transparent: v.transparent, running: v.running, apart: v.around != nil,
		reach: func(pod netip.Addr) netip.Addr {
			if v.around == nil || !v.around.direct(pod) {
				return netip.Addr{}
			}
			from, _ := v.around.source(pod)
			return from
		},
	}
}

// proxyListens reports whether the proxy or the agent beside it listens already.
func (v *validator) proxyListens(list []entry) bool {
	r := &v.options.Redirect
	return listening(list, rules.TCP, r.ProxyPort) || listening(list, rules.TCP, r.InboundCapturePort) ||
		r.DNS.Capture && (listening(list, rules.TCP, rules.DNSPort) || listening(list, rules.UDP, rules.DNSPort))
}
