package compat

import (
	"errors"
	"io/fs"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// encodeForKernel is like encodeRule, but uses the newest revision of the target that the kernel
// supports. For older revisions iptables-legacy-save prints "[unsupported revision]", although the
// kernel accepts them. If the kernel cannot be probed, encodeForKernel uses the oldest revision,
// which every kernel supports.
func encodeForKernel(family rules.Family, r *rules.Rule) (xtables.Rule, error) {
	encoded, err := encodeRule(family, r)
	if err != nil {
		return encoded, err
	}
	target := encoded.Target()
	if target.Name == "" {
		return encoded, nil
	}
	for _, newer := range xt.Newer(target) {
		if kernelHas(family, newer) {
			return xtables.NewRule(family, encoded.Header(), encoded.Matches(),
				xtables.Target{Extension: newer})
		}
	}
	return encoded, nil
}

// targetSupport caches by feature whether the kernel supports a revision of a target.
var targetSupport sync.Map

// kernelHas reports whether the kernel is known to support a revision of a target. It probes the
// kernel, unless an earlier probe of the revision was conclusive. The probe needs CAP_NET_ADMIN in
// the namespace of the thread, and loads the target's module.
func kernelHas(family rules.Family, x xt.Extension) bool {
	f := xtables.Feature{
		Family: family, Kind: xtables.KindTarget, Name: x.Name, Revision: x.Revision,
	}
	if has, known := targetSupport.Load(f); known {
		return has.(bool)
	}
	err := xtables.Probe(nil, f)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EPROTONOSUPPORT) {
		targetSupport.Store(f, err == nil)
	}
	return err == nil
}
