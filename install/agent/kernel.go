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

// kernelRetry is the time between two tests of a kernel that lacks features. The test is repeated,
// because the missing modules may be installed later.
const kernelRetry = 30 * time.Second

// A kernelTester tests whether the kernel supports the rules.
type kernelTester struct {
	backend compat.BackendName
	choose  func(compat.BackendName) (compat.Backend, error) // compat.Choose, except in tests

	mu   sync.Mutex
	part observe.Part // the result of the last test
}

func newKernelTester(backend compat.BackendName) *kernelTester {
	return &kernelTester{
		backend: backend, choose: compat.Choose,
		part: observe.Part{Name: observe.Kernel, Reasons: []string{"it has not been tested yet"}},
	}
}

// result returns the result of the last test.
func (k *kernelTester) result() observe.Part {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.part
}

// await repeats the test until the result is ready, and passes each result to report. It returns
// false if ctx ends before.
func (k *kernelTester) await(ctx context.Context, report func(observe.Part)) bool {
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

// test tests whether the rules of a typical pod can be applied.
func (k *kernelTester) test() observe.Part {
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
		// The plugin may succeed: the runtime gives it privileges that the agent may lack.
		part.Ready, part.Unknown = true, true
		part.Reasons = []string{fmt.Sprintf("whether it supports the rules is unknown before "+
			"the first pod, because the agent lacks the permission to test it (%v)", err)}
	default:
		part.Reasons = []string{fmt.Sprintf("it does not support the rules of a pod: %v", err)}
		part.Reasons = append(part.Reasons, k.missingFeatures(rs)...)
	}
	return part
}

// apply applies the rules in a temporary network namespace, and returns the backend that was used.
func (k *kernelTester) apply(rs rules.Ruleset) (compat.BackendName, error) {
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

// missingFeatures returns a sentence for each feature that the kernel lacks according to the probes
// of the allowed backends, and for each failed probe.
func (k *kernelTester) missingFeatures(rs rules.Ruleset) []string {
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
