package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// kernelRetry is the interval for testing a kernel that lacks features, because modules may be
// installed later.
const kernelRetry = 30 * time.Second

// A kernel tests whether the kernel supports the rules.
type kernel struct {
	backend compat.BackendName
	choose  func(compat.BackendName) (compat.Backend, error)

	mu   sync.Mutex
	part observe.Part
}

func newKernel(backend compat.BackendName) *kernel {
	return &kernel{
		backend: backend, choose: compat.Choose,
		part: observe.Part{Name: observe.Kernel, Reasons: []string{"not tested yet"}},
	}
}

func (k *kernel) get() observe.Part {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.part
}

// await repeats the test until it succeeds, and passes each result to report. It returns false if
// ctx ends before the test succeeds.
func (k *kernel) await(ctx context.Context, report func(observe.Part)) bool {
	for {
		part := k.test()
		k.mu.Lock()
		k.part = part
		k.mu.Unlock()
		report(part)
		if part.Ready {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(kernelRetry):
		}
	}
}

// test applies the rules of a typical pod in a temporary network namespace.
func (k *kernel) test() observe.Part {
	part := observe.Part{Name: observe.Kernel}
	r := rules.DefaultRedirect()
	r.InboundPorts.All, r.OutboundCIDRs.All = true, true
	rs := rules.MustCompile(r)
	backend, err := k.apply(rs)
	switch {
	case err == nil:
		part.Ready = true
		part.Reasons = []string{fmt.Sprintf("it supports the rules with backend %s", backend)}
	case compat.IsNotPermitted(err):
		// The runtime gives the plugin privileges that the agent may lack.
		part.Ready, part.Unknown = true, true
		part.Reasons = []string{fmt.Sprintf("whether it supports the rules is unknown before "+
			"the first pod, because the agent lacks the permission to test it (%v)", err)}
	default:
		part.Reasons = []string{fmt.Sprintf("it does not support the rules of a pod: %v", err)}
		part.Reasons = append(part.Reasons, k.missingFeatures(rs)...)
	}
	return part
}

func (k *kernel) apply(rs rules.Ruleset) (compat.BackendName, error) {
	ns, err := netns.New()
	if err != nil {
		return "", err
	}
	defer func() { _ = ns.Close() }()
	backend, err := k.choose(k.backend)
	if err != nil {
		return "", err
	}
	result, err := backend.Apply(ns, rs, compat.Snapshot{})
	return result.Backend, err
}

// missingFeatures returns the features that the kernel lacks according to the backends' probes.
func (k *kernel) missingFeatures(rs rules.Ruleset) []string {
	var reasons []string
	add := func(features []nft.Support, err error) {
		if err != nil {
			reasons = append(reasons, err.Error())
		}
		for _, f := range features {
			if f.Err != nil {
				reasons = append(reasons, f.Err.Error())
			}
		}
	}
	if k.backend != compat.BackendLegacy {
		add(nft.Probe())
	}
	if k.backend != compat.BackendNFT {
		add(compat.ProbeLegacy(rs))
	}
	return reasons
}
