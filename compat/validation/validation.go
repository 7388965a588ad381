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

// Options are the options of [Run].
type Options struct {
	// Redirect contains the parameters, which must be valid. It is ignored if Ambient is set.
	Redirect rules.Redirect
	// Ambient contains the parameters of a pod in ambient mode, which must be valid. It is nil for
	// a pod with a sidecar.
	Ambient *rules.Ambient
	// PodIPs are the pod's addresses. The default is the addresses of the namespace's interfaces.
	PodIPs []netip.Addr
	// Port is the destination port of probes, unless the parameters require another port. 0 means
	// DefaultPort.
	Port uint16
	// Timeout limits the time in which failed checks are repeated, because the rules may not have
	// been applied yet. 0 means DefaultTimeout.
	Timeout time.Duration
	// Backend is the backend that holds the rules. Empty means [compat.BackendAuto].
	Backend compat.BackendName
	// Progress, if not nil, is called before each repetition, with the result of the previous
	// attempt and the remaining time.
	Progress func(r Result, remaining time.Duration) `json:"-"`
}

// The first attempt waits 100 ms for its probes. A captured probe arrives within a millisecond.
// Each further attempt waits twice as long, in case the host is busy.
//
// Attempts begin at least 50 ms apart. This interval doubles too, up to half a second.
const (
	firstWait     = 100 * time.Millisecond
	firstInterval = 50 * time.Millisecond
	maxInterval   = 500 * time.Millisecond
)

// Run checks with probes whether the namespace (nil: the current one) captures the traffic that the
// parameters select. It repeats failed checks until no check fails or the timeout leaves no time
// for another attempt. If the caller is in another namespace, Run sends the inbound probes from
// there. An error means that no check was possible; failed checks are in the result.
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
	wait, interval := firstWait, firstInterval
	for {
		r.Attempts++
		next := time.Now().Add(interval)
		r.Checks, r.Empty = v.attempt(min(wait, o.Timeout-time.Since(start)))
		r.Running, r.Duration = v.running, time.Since(start)
		// The remaining time must suffice for probes to arrive.
		if r.Count(Failed) == 0 || o.Timeout-time.Since(start) < firstWait+interval {
			break
		}
		if o.Progress != nil {
			o.Progress(r, o.Timeout-time.Since(start))
		}
		time.Sleep(time.Until(next))
		wait, interval = 2*wait, min(2*interval, maxInterval)
	}
	return v.explainFailures(r), nil
}

// compile returns the ruleset of the parameters. In ambient mode it sets Redirect to the equivalent
// parameters, which the plan uses.
func (o *Options) compile() (rules.Ruleset, error) {
	if o.Ambient == nil {
		return rules.Compile(o.Redirect)
	}
	o.Redirect = o.Ambient.AsRedirect()
	return rules.CompileAmbient(*o.Ambient)
}

// A validator is the state of a call of Run.
type validator struct {
	ns           *netns.NS // the namespace to validate
	here         *netns.NS // the namespace of the caller
	options      Options
	backend      compat.Backend
	desired      rules.Ruleset // the ruleset of the parameters
	owners       *owners
	pod          *network // of ns
	outerNetwork *network // of here; nil if here and ns are the same namespace
	// completed contains by name the checks that passed in an earlier attempt. They are not
	// repeated.
	completed map[string]Check
	// running reports whether a proxy is listening. mayUseTransparent reports whether this process
	// may create transparent sockets.
	running, mayUseTransparent bool
}

// open opens the namespaces, and reads what does not change between attempts.
func (v *validator) open() (err error) {
	if here, err := netns.Open("/proc/thread-self/ns/net"); err == nil {
		v.here = here
	}
	if v.ns == nil {
		// The goroutines of Run may run on threads in other namespaces than the calling thread.
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

// attempt returns all checks, but sends only the probes that have not succeeded in an earlier
// attempt. wait is the maximum time until probes arrive. empty reports whether the parameters
// capture no traffic of the application.
func (v *validator) attempt(wait time.Duration) (checks []Check, empty bool) {
	// Ignore an error. If the kernel cannot list sockets and a proxy is running, opening a listener
	// fails.
	found, _ := findSockets(v.ns, netip.AddrPort{})
	v.running, v.mayUseTransparent = v.isProxyListening(found), mayBeTransparent(v.ns)
	probes, captures := plan(v.options, v.desired, v.planInputs())

	for i := range probes {
		if c, ok := v.completed[probes[i].Name]; ok {
			probes[i].Check = c
		}
	}
	var l listeners
	v.openListeners(&l, probes)
	observations := make([]observation, len(probes))
	var wg sync.WaitGroup
	deadline := time.Now().Add(wait)
	for i := range probes {
		if probes[i].Status == "" {
			wg.Go(func() { observations[i] = v.sendAndObserve(&l, &probes[i], deadline) })
		}
	}
	wg.Wait()
	l.close()
	rulesCheck := v.readBack()
	for i := range probes {
		c := probes[i].result(observations[i], rulesCheck.Status == OK)
		if c.Status == OK {
			v.completed[c.Name] = c
		}
		checks = append(checks, c)
	}
	return append(append(checks, v.checkSourceMark()...), rulesCheck), !captures
}

// planInputs returns the inputs of the plan for this attempt.
func (v *validator) planInputs() planInputs {
	return planInputs{
		self: v.owners.self, mayRunAs: v.owners.mayRunAs,
		route: v.pod.route, device: v.pod.device,
		mayUseTransparent: v.mayUseTransparent, running: v.running, isOutside: v.outerNetwork != nil,
		outsideSource: func(pod netip.Addr) netip.Addr {
			if v.outerNetwork == nil || !v.outerNetwork.isOnLink(pod) {
				return netip.Addr{}
			}
			from, _ := v.outerNetwork.source(pod)
			return from
		},
	}
}

// isProxyListening reports whether the proxy or its agent is already listening.
func (v *validator) isProxyListening(found foundSockets) bool {
	r := &v.options.Redirect
	return found.isListening(rules.TCP, r.ProxyPort) ||
		found.isListening(rules.TCP, r.InboundCapturePort) ||
		r.DNS.Capture && (found.isListening(rules.TCP, rules.DNSPort) ||
			found.isListening(rules.UDP, rules.DNSPort))
}
