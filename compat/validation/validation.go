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

// Options are the options of a validation.
type Options struct {
	// Redirect contains the parameters, which must be valid. It is ignored if Ambient is set.
	Redirect rules.Redirect
	// Ambient contains the parameters of a pod in ambient mode, which must be valid; nil for a pod
	// with a sidecar.
	Ambient *rules.Ambient
	// PodIPs are the pod's addresses; by default, those of the namespace's interfaces.
	PodIPs []netip.Addr
	// Port is the destination port of probes unless the parameters require another; 0 means
	// DefaultPort.
	Port uint16
	// Timeout limits the repetition of failed checks, which are repeated because rules may not be
	// applied yet; 0 means DefaultTimeout.
	Timeout time.Duration
	// Backend is the backend that holds the rules; empty means [compat.BackendAuto].
	Backend compat.BackendName
	// Progress, if not nil, is called between attempts with the result of the last one and the
	// remaining time.
	Progress func(r Result, remaining time.Duration) `json:"-"`
}

// The first attempt waits 100 ms for its probes. A captured probe arrives within a millisecond.
// Each further attempt waits twice as long, in case the host is busy.
//
// Attempts begin at least 50 ms apart. This interval doubles too, up to half a second.
const (
	firstWait  = 100 * time.Millisecond
	firstPause = 50 * time.Millisecond
	maxPause   = 500 * time.Millisecond
)

// Run validates with probes whether the namespace (nil: the current one) captures the traffic of
// the parameters, until no check fails or the timeout expires. The caller's namespace is outside.
// The error means that no check was possible; failed checks are in the result.
func Run(ns *netns.NS, o Options) (Result, error) {
	desired, err := o.compile()
	if err != nil {
		return Result{}, fmt.Errorf("validate: %w", err)
	}
	o.Port = cmp.Or(o.Port, DefaultPort)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	backend, err := compat.Choose(cmp.Or(o.Backend, compat.BackendAuto))
	if err != nil {
		return Result{}, fmt.Errorf("validate: %w", err)
	}
	v := &validator{
		ns: ns, options: o, backend: backend, desired: desired, completed: map[string]Check{},
	}
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
		// The remaining time must suffice for probes to arrive.
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

// compile returns the ruleset of the parameters. In ambient mode it sets Redirect, from which the
// plan reads what is captured.
func (o *Options) compile() (rules.Ruleset, error) {
	if o.Ambient == nil {
		return rules.Compile(o.Redirect)
	}
	o.Redirect = o.Ambient.AsRedirect()
	return rules.CompileAmbient(*o.Ambient)
}

// validator is the state of a call of Run.
type validator struct {
	ns           *netns.NS
	here         *netns.NS // where the caller is
	options      Options
	backend      compat.Backend
	desired      rules.Ruleset // what the parameters compile to
	owners       *owners
	pod          *network
	outerNetwork *network // of here; nil if that is the same namespace
	// completed contains the checks of probes that passed in an earlier attempt and are not
	// repeated.
	completed map[string]Check
	// running reports that a proxy is listening, transparent that this process may open transparent
	// listeners.
	running, transparent bool
}

// open reads the facts that do not change between attempts.
func (v *validator) open() (err error) {
	if here, err := netns.Open("/proc/thread-self/ns/net"); err == nil {
		v.here = here
	}
	if v.ns == nil {
		// Goroutines of a caller inside NS.Do are not in its namespace.
		v.ns = v.here
	}
	if v.pod, err = openNetwork(v.ns); err != nil {
		return err
	}
	if v.here.ID() != v.ns.ID() {
		if v.outerNetwork, err = openNetwork(v.here); err != nil {
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
	if v.outerNetwork != nil {
		v.outerNetwork.close()
	}
	_ = v.here.Close()
}

// attempt runs all checks once and waits so long for probes to arrive.
func (v *validator) attempt(wait time.Duration) (checks []Check, empty bool) {
	// If the kernel cannot list sockets, a failure to open a listener shows that the proxy has one.
	list, _ := sockets(v.ns)
	v.running, v.transparent = v.proxyListens(list), mayBeTransparent(v.ns)
	probes, captures := plan(v.options, v.desired, v.planInputs())

	for i := range probes {
		if c, ok := v.completed[probes[i].Name]; ok {
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
		c := probes[i].result(observations[i], back.Status == OK)
		if c.Status == OK {
			v.completed[c.Name] = c
		}
		checks = append(checks, c)
	}
	return append(append(checks, v.sourceCheck()...), back), !captures
}

// planInputs returns the inputs of the plan for this attempt.
func (v *validator) planInputs() planInputs {
	return planInputs{
		self: v.owners.self, can: v.owners.can,
		route: v.pod.route, device: v.pod.device,
		transparent: v.transparent, running: v.running, apart: v.outerNetwork != nil,
		reach: func(pod netip.Addr) netip.Addr {
			if v.outerNetwork == nil || !v.outerNetwork.direct(pod) {
				return netip.Addr{}
			}
			from, _ := v.outerNetwork.source(pod)
			return from
		},
	}
}

// proxyListens reports whether the proxy or its agent is already listening.
func (v *validator) proxyListens(list []entry) bool {
	r := &v.options.Redirect
	return listening(list, rules.TCP, r.ProxyPort) ||
		listening(list, rules.TCP, r.InboundCapturePort) ||
		r.DNS.Capture && (listening(list, rules.TCP, rules.DNSPort) ||
			listening(list, rules.UDP, rules.DNSPort))
}
