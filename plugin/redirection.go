package plugin

import (
	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
)

// A redirection installs the rules of a pod in its sandbox.
type redirection struct {
	*call
	pod    *decide.Pod
	result []byte
	// record is the record of the attachment. install stores the parameters of the rules and their
	// backend in it.
	record *record.Record
}

// install compiles the rules, applies them and verifies them. The calling thread must be in the
// sandbox.
func (r *redirection) install() error {
	redirect, err := r.parameters(nil, r.pod, r.result)
	if err != nil {
		return err
	}
	rs, err := rules.Compile(redirect)
	if err != nil {
		return cniError(CodeParameters, "the parameters are invalid", err)
	}
	backend, err := r.Backend(r.config.Backend)
	if err != nil {
		return cniError(CodeApply, "the backend is not available", err)
	}
	applied, err := backend.Apply(nil, rs, compat.Snapshot{})
	isVerified := false
	defer func() {
		// Remove only rules that did not exist before. Rules of an earlier ADD stay, because
		// without rules a running pod would bypass the proxy.
		if !isVerified && applied.Outcome == nft.Created {
			if _, err := backend.Remove(nil); err != nil {
				r.entry.put(zap.NamedError("not_removed", err))
			}
		}
	}()
	switch {
	case compat.IsLegacyTooLarge(applied.Backend, err):
		// The rules in nf_tables redirect the pod. The agent reports that other rules are unknown.
		r.entry.put(zap.NamedError("legacy_error", err))
	case err != nil:
		return err
	}
	r.entry.setApplied(applied)
	if err := r.verify(rs, applied); err != nil {
		return err
	}
	isVerified = true
	r.record.Redirect, r.record.Backend = &redirect, applied.Backend
	return nil
}

// verify reads the rules from the kernel, and fails if they differ from the ruleset. If the tables
// of iptables-legacy are too large to read, it compares only the rules in nf_tables.
func (r *redirection) verify(rs rules.Ruleset, applied compat.Result) error {
	found, err := r.compare(applied.Backend, nil, rs, applied.Snapshot())
	if compat.IsLegacyTooLarge(found.Backend, err) {
		err = nil
	}
	switch {
	case err != nil:
		return r.rulesReadError(err)
	case len(found.Differences) == 0:
		return nil
	}
	return r.differencesError(CodeVerify,
		"the rules in the kernel for pod %s differ from the rules that were sent",
		found.Differences)
}
